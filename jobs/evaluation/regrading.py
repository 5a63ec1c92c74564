"""An evaluation's recorded answers graded again, from its folder alone: nothing is sampled, and no data is read."""

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from jobs.evaluation.answer_log import AnsweredQuestion, AnswerLog
from jobs.evaluation.generation import Sample
from jobs.evaluation.protocols import protocol_of
from jobs.evaluation.questions import BenchmarkQuestion, LoadedBenchmark
from jobs.evaluation.recorded_answers import RecordedQuestion, find_answer_damage, iterate_answers
from jobs.evaluation.regrades import ChangedOutcome, Regrading
from jobs.evaluation.results import benchmark_event
from jobs.grading.pool import AnswerGrader
from jobs.grading.schemes import GradeItem, Scheme, grader_version
from jobs.recording.recorder import RunRecorder
from jobs.runs.control import TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import BenchmarkChoice, EvalSpec

logger = logging.getLogger(__name__)


def regrade_benchmark(
    spec: EvalSpec,
    event: Mapping[str, Any],
    source: RunDirectory,
    target: tuple[RunDirectory, int, RunRecorder],
    grader: AnswerGrader,
) -> Regrading:
    """Grade the answers to a finished benchmark again and record them in another evaluation's attempt.

    Raises:
        TrainingError: Questions or answers are not recorded as they were asked; one sentence says why.
    """
    began_at = time.monotonic()
    run, attempt, recorder = target
    name = event["benchmark"]
    choice = next(choice for choice in spec.benchmarks if choice.name == name)
    for fault in find_answer_damage(source.path, name):
        logger.warning("%s: %s", source.run_id, fault)
    recorded = dict(iterate_answers(source.path, name))
    benchmark = _benchmark(source, choice, event, recorded)
    answers, changes = {}, []
    with closing(AnswerLog(run.path, name, attempt)) as log:
        for question in benchmark.questions:
            old = recorded[question.question_id]
            answered = _grade(question, old, grader)
            log.append(answered, question)
            answers[question.question_id] = answered
            changes += _changes(f"{name} {question.question_id}", old, answered)
    new_event = benchmark_event(spec, benchmark, answers, time.monotonic() - began_at)
    recorder.record("benchmark", new_event)
    num_answers = sum(len(answered.samples) for answered in answers.values())
    before, after = ({key: sum(item["num_correct"][key]) for key in item["num_correct"]} for item in (event, new_event))
    return Regrading(run.run_id, num_answers, before, after, changes)


def _benchmark(
    source: RunDirectory, choice: BenchmarkChoice, event: Mapping[str, Any], recorded: Mapping[str, RecordedQuestion]
) -> LoadedBenchmark:
    protocol = protocol_of(choice)
    missing = [item for item in event["question_ids"] if item not in recorded]
    if missing:
        raise TrainingError(
            f"{source.run_id}: the answers to question {missing[0]} of {choice.name} are not recorded; score the model "
            "again."
        )
    questions = [_question(item, recorded[item], protocol.answer_kind) for item in event["question_ids"]]
    benchmark = LoadedBenchmark(protocol, choice, questions, event["samples_per_question"], event["notices"])
    if benchmark.data_hash != event["comparability"]["data_hash"]:
        raise TrainingError(
            f"{source.run_id}: questions of {choice.name} are not recorded as they were asked; score the model again."
        )
    return benchmark


def _question(question_id: str, recorded: RecordedQuestion, declared_kind: str) -> BenchmarkQuestion:
    kind = recorded.answer_kind or declared_kind
    messages = ({"role": "user", "content": recorded.text},)
    return BenchmarkQuestion(question_id, messages, recorded.gold, "choice" if kind == "choice" else "math")


def _grade(question: BenchmarkQuestion, recorded: RecordedQuestion, grader: AnswerGrader) -> AnsweredQuestion:
    samples = [Sample(item.text, item.num_tokens, item.is_truncated, item.log_prob) for item in recorded.answers]
    items = [GradeItem(question.answer, sample.text, question.answer_kind) for sample in samples]
    outcomes = grader.grade_side_by_side(items)
    return AnsweredQuestion(question.question_id, recorded.seed, samples, outcomes, grader_version())


def _changes(name: str, old: RecordedQuestion, answered: AnsweredQuestion) -> list[ChangedOutcome]:
    pairs = zip(old.answers, answered.outcomes, strict=True)
    return [
        ChangedOutcome(f"{name}, sample {number}", scheme.value, before.outcomes[scheme.value], after)
        for number, (before, outcomes) in enumerate(pairs, start=1)
        for scheme in Scheme
        if before.outcomes[scheme.value] != (after := getattr(outcomes, scheme).value)
    ]
