"""What an evaluation records: a line for each finished question, in append-only files, and an event with the scores.

Each attempt writes files of its own, so that nothing that an earlier one wrote is touched. A line that a kill cut
short is skipped and its question asked again.
"""

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from exgrpo.jobs.evaluation.benchmark_questions import BenchmarkQuestion, LoadedBenchmark
from exgrpo.jobs.evaluation.generation import Sample
from exgrpo.jobs.evaluation.recorded_answers import FOLDER, encode_line, find_damage, list_files, read_lines
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.tasks.grading.answer_grader import Scheme, SideBySide, grader_version
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, Verdict
from exgrpo.jobs.training.reward_parts import RewardParts
from exgrpo_core.faults import describe_fault
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One finished question: its samples, their outcomes by every scheme, the seed, and the grader that decided."""

    question_id: str
    question: str
    gold: str
    seed: int
    samples: list[Sample]
    outcomes: list[SideBySide]
    grader_version: str


class AnswerLog:
    """The answers to one benchmark in one run. One writer; what `append` returned from survives a kill -9."""

    def __init__(self, run_path: Path, benchmark: str, attempt: int) -> None:
        self._folder = run_path / FOLDER
        self._benchmark = benchmark
        self._path = self._folder / f"{benchmark}-{attempt:04d}.jsonl"
        self._file: IO[bytes] | None = None

    def read(self) -> dict[str, AnsweredQuestion]:
        """Return all finished questions by id, whichever attempt finished them; the newest line counts."""
        answers: dict[str, AnsweredQuestion] = {}
        for path in list_files(self._folder, self._benchmark):
            for fault in find_damage(path):
                logger.warning("%s Questions without answers are asked again.", describe_fault(fault))
            for record in read_lines(path):
                try:
                    answered = AnsweredQuestion(
                        question_id=str(record["question_id"]),
                        question=str(record["question"]),
                        gold=str(record["gold"]),
                        seed=int(record["seed"]),
                        samples=[Sample(**sample) for sample in record["samples"]],
                        outcomes=[SideBySide(*map(Grade, names)) for names in record["outcomes"]],
                        grader_version=str(record["grader_version"]),
                    )
                except (ValueError, KeyError, TypeError, OverflowError):
                    logger.warning("%s: holds a line without answers; its question is asked again.", path)
                else:
                    answers[answered.question_id] = answered
        return answers

    def append(self, answered: AnsweredQuestion) -> None:
        """Write one finished question, with its text and gold answer."""
        outcomes = [[outcome.paper, outcome.training] for outcome in answered.outcomes]
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        self._file.write(encode_line(asdict(answered) | {"outcomes": outcomes}))

    def sync(self) -> None:
        """Put what was appended on disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second time changes nothing."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


_NO_TOKENS = np.empty(0, dtype=np.int32)


def comparability(spec: EvalSpec, benchmark: LoadedBenchmark) -> dict[str, Any]:
    """Return all that two scores have to share to be compared: data, template, grader and sampling."""
    return {
        "data_hash": benchmark.data_hash,
        "template": benchmark.template(spec),
        "grader_version": grader_version(),
        "samples_per_question": benchmark.samples_per_question,
        "temperature": benchmark.temperature(spec),
        "top_p": spec.top_p,
        "max_response_tokens": spec.max_response_tokens,
    }


def comparability_key(parts: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that are equal where all parts are."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def benchmark_event(
    spec: EvalSpec, benchmark: LoadedBenchmark, answers: Mapping[str, AnsweredQuestion], seconds: float
) -> dict[str, Any]:
    """Return what is recorded of a finished benchmark."""
    parts = comparability(spec, benchmark)
    ordered = [answers[question.question_id] for question in benchmark.questions]
    samples = [sample for item in ordered for sample in item.samples]
    return {
        "benchmark": benchmark.protocol.name,
        "title": benchmark.protocol.title,
        "comparability": parts,
        "comparability_key": comparability_key(parts),
        "samples_per_question": benchmark.samples_per_question,
        "question_ids": [entry.question_id for entry in ordered],
        "num_correct": {
            scheme.value: [
                sum(getattr(outcome, scheme) is Grade.CORRECT for outcome in item.outcomes) for item in ordered
            ]
            for scheme in Scheme
        },
        "outcomes": {
            scheme.value: dict(
                Counter(str(getattr(side, scheme)) for answered in ordered for side in answered.outcomes)
            )
            for scheme in Scheme
        },
        "mean_tokens": sum(sample.num_tokens for sample in samples) / len(samples),
        "truncated_share": sum(sample.is_truncated for sample in samples) / len(samples),
        "notices": [*benchmark.notices, *repetition_notices(spec, benchmark, answers)],
        "seconds": seconds,
        "model": spec.model.source,
        "source_run_id": spec.model.run_id,
        "source_step": spec.model.step,
    }


def repetition_notices(
    spec: EvalSpec, benchmark: LoadedBenchmark, answers: Mapping[str, AnsweredQuestion]
) -> list[str]:
    """Return a notice where all samples of each question are one text, as of a server that draws with one seed."""
    is_greedy, num_samples = benchmark.temperature(spec) == 0, benchmark.samples_per_question
    asked = [answers[question.question_id] for question in benchmark.questions]
    if is_greedy or num_samples == 1 or any(len({sample.text for sample in item.samples}) > 1 for item in asked):
        return []
    advice = (
        "raise the temperature if the model is so sure"
        if spec.server is None
        else "look whether the server gives every answer to a request the same seed"
    )
    return [
        f"The {num_samples} answers to each question are the same text, so Pass@k and the interval say too much; "
        f"{advice}."
    ]


def reward_means(
    parts: RewardParts, questions: Sequence[BenchmarkQuestion], answers: Mapping[str, AnsweredQuestion]
) -> dict[str, float]:
    """Return the mean of each part by its name; the answer is right where `training` says so."""
    graded = [
        (
            Question(index, item.question_id, _NO_TOKENS, item.text, item.answer, {"question": item.text}),
            Response(sample.text, _NO_TOKENS, sample.is_truncated),
            Verdict(float(sides.training is Grade.CORRECT), sides.training.value),
        )
        for index, item in enumerate(questions)
        for sample, sides in zip(answers[item.question_id].samples, answers[item.question_id].outcomes, strict=True)
    ]
    asked, responses, verdicts = (list(column) for column in zip(*graded, strict=True))
    parts.weigh(asked, responses, verdicts)
    return parts.take_means()
