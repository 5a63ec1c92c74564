"""Grading recorded answers again, by another scheme or a newer grader; nothing is sampled, both results are kept."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from exgrpo_core.types import Question
from jobs.actions.staging import staging_folder
from jobs.evaluation.regrades import (
    EVERY_SCHEME,
    ChangedOutcome,
    RecordedRegrading,
    Regrading,
    regrading_path,
    write_regrading,
)
from jobs.evaluation.regrading import regrade_benchmark
from jobs.grading.pool import AnswerGrader
from jobs.grading.reward_function import Response
from jobs.grading.schemes import AnswerKind, GradeItem, Scheme, grader_version
from jobs.judging.items import counted_step_files, read_training_questions
from jobs.recording.event_reader import iterate_events
from jobs.recording.file_recorder import FileRecorder
from jobs.recording.trajectory_file import read_trajectories, select_step
from jobs.runs.attempts import write_outcome
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError, open_run
from jobs.runs.status import RunStatus
from jobs.specs.evaluation import EvalSpec
from jobs.specs.train import MAX_NAME_CHARACTERS, RecordingSpec, TrainSpec
from jobs.tasks.questions import build_question
from jobs.training.run_data import open_reward

REGRADED_TAG = "regraded"
_COLUMNS = ("trajectory_id", "question_index", "is_replayed", "is_truncated", "verdict", "text")
_NO_TOKENS = np.empty(0, dtype=np.int32)

Grade = Callable[[Sequence[Question], Sequence[Response]], Sequence[str]]


def regrade(runs_root: Path, run_id: str, scheme: Scheme) -> Regrading:
    """Grade the answers of an evaluation by every scheme, or the trajectories of a training run by one.

    An evaluation becomes a second one; the outcomes of a run are written to a file of its own in the run's folder.

    Raises:
        CommandError: It is another kind of job, has nothing finished, or is an evaluation by this very grader.
        TrainingError: Questions or answers are not recorded.
    """
    run = open_run(runs_root, run_id)
    spec = run.job_spec()
    if isinstance(spec, EvalSpec):
        return _regrade_evaluation(runs_root, run, spec)
    if isinstance(spec, TrainSpec):
        return _regrade_run(run, spec, scheme)
    raise CommandError(f"{run_id}: expected a training run or an evaluation, is a {spec.kind} job.")


def _regrade_evaluation(runs_root: Path, source: RunDirectory, spec: EvalSpec) -> Regrading:
    finished = {event["benchmark"]: event for event in iterate_events(source, "benchmark")}
    if not finished:
        raise CommandError(f"{source.run_id}: expected a finished benchmark, has none; `exgrpo resume` continues it.")
    if all(event["comparability"]["grader_version"] == grader_version() for event in finished.values()):
        raise CommandError(f"{source.run_id}: was graded by this grader, {grader_version()}, already.")
    kept = [choice for choice in spec.benchmarks if choice.name in finished]
    name = f"{spec.name[: MAX_NAME_CHARACTERS - len(REGRADED_TAG) - 1]} {REGRADED_TAG}"
    spec = spec.model_copy(update={"name": name, "waits_for": None, "benchmarks": tuple(kept)})
    with staging_folder(runs_root, "regrading") as staging:
        run = RunDirectory.create(staging, spec, parent_run_id=source.run_id)
        attempt = run.claim_attempt()
        with (
            AnswerGrader(spec.num_graders, spec.seconds_per_answer) as grader,
            closing(FileRecorder(run, attempt, RecordingSpec())) as recorder,
        ):
            recorder.status(RunStatus.RUNNING)
            target = run, attempt, recorder
            parts = [regrade_benchmark(spec, event, source, target, grader) for event in finished.values()]
            recorder.status(RunStatus.SUCCEEDED)
        regrading = _sum(run.run_id, parts)
        write_regrading(run.path, RecordedRegrading(EVERY_SCHEME, grader_version(), regrading))
        write_outcome(run.attempt_path(attempt), RunStatus.SUCCEEDED, "")
        run.path.rename(runs_root / run.run_id)
    journal = Journal(runs_root)
    journal.append(JournalKind.IMPORTED, run.run_id, source=source.run_id)
    journal.append(JournalKind.TAGGED, run.run_id, tag=REGRADED_TAG)
    return regrading


def _sum(result: str, parts: Sequence[Regrading]) -> Regrading:
    before, after = Counter[str](), Counter[str]()
    for part in parts:
        before.update(part.num_correct_before)
        after.update(part.num_correct_after)
    changes = [change for part in parts for change in part.changes]
    return Regrading(result, sum(part.num_answers for part in parts), dict(before), dict(after), changes)


def _regrade_run(run: RunDirectory, spec: TrainSpec, scheme: Scheme) -> Regrading:
    questions = {
        index: build_question(index, row["question_id"], row["prompt_text"], row["answer"], [], row["details"])
        for index, row in read_training_questions(run).items()
    }
    before, after, changes = Counter[str](), Counter[str](), list[ChangedOutcome]()
    with _open_grade(spec, scheme) as grade:
        for step, path in sorted(counted_step_files(run).items()):
            table = select_step(read_trajectories(path, _COLUMNS), step)
            rows = [row for row in table.to_pylist() if not row["is_replayed"]]
            responses = [Response(row["text"], _NO_TOKENS, row["is_truncated"]) for row in rows]
            outcomes = grade([questions[row["question_index"]] for row in rows], responses)
            before.update(row["verdict"] for row in rows)
            after.update(outcomes)
            changes += [
                ChangedOutcome(f"step {step}, trajectory {row['trajectory_id']}", scheme.value, row["verdict"], outcome)
                for row, outcome in zip(rows, outcomes, strict=True)
                if row["verdict"] != outcome
            ]
    path = regrading_path(run.path, scheme, grader_version())
    correct_before, correct_after = ({scheme.value: counts["correct"]} for counts in (before, after))
    regrading = Regrading(str(path.relative_to(run.path)), before.total(), correct_before, correct_after, changes)
    write_regrading(run.path, RecordedRegrading(scheme, grader_version(), regrading))
    return regrading


@contextmanager
def _open_grade(spec: TrainSpec, scheme: Scheme) -> Iterator[Grade]:
    """Yield the run's reward for the training scheme, else a grader of mathematics and choices."""
    if scheme is Scheme.TRAINING:
        with open_reward(spec) as reward:
            yield lambda questions, responses: [verdict.outcome for verdict in reward.grade(questions, responses)]
        return
    with AnswerGrader() as grader:

        def grade(questions: Sequence[Question], responses: Sequence[Response]) -> list[str]:
            pairs = zip(questions, responses, strict=True)
            items = [GradeItem(question.answer, response.text, _kind(question)) for question, response in pairs]
            return [outcome.value for outcome in grader.grade(items, scheme)]

        yield grade


def _kind(question: Question) -> AnswerKind:
    return "choice" if question.metadata.get("answer_kind") == "choice" else "math"
