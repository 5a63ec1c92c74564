"""The answers of an evaluation on disk: a line for each finished question, in append-only files.

Each attempt writes files of its own, so that nothing that an earlier one wrote is touched. A line that a kill cut
short is skipped and its question asked again.
"""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from exgrpo_core.faults import describe_fault
from jobs.evaluation.benchmark_questions import BenchmarkQuestion
from jobs.evaluation.generation import Sample
from jobs.evaluation.recorded_answers import (
    FOLDER,
    encode_line,
    find_damage,
    list_files,
    read_lines,
)
from jobs.grading.answer_grader import SideBySide
from jobs.grading.reward_function import Grade

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One finished question: its samples, their outcomes by every scheme, the seed, and the grader that decided."""

    question_id: str
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
                    answered = _answered(record)
                except (ValueError, KeyError, TypeError, OverflowError):
                    logger.warning("%s: holds a line without answers; its question is asked again.", path)
                else:
                    answers[answered.question_id] = answered
        return answers

    def append(self, answered: AnsweredQuestion, question: BenchmarkQuestion) -> None:
        """Write one finished question, with its text and gold answer for readers of the answers."""
        record = {
            "question_id": answered.question_id,
            "question": question.text,
            "gold": question.answer,
            "seed": answered.seed,
            "grader_version": answered.grader_version,
            "samples": [asdict(sample) for sample in answered.samples],
            "outcomes": [[outcome.paper, outcome.training] for outcome in answered.outcomes],
        }
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        self._file.write(encode_line(record))

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


def _answered(record: dict[str, Any]) -> AnsweredQuestion:
    return AnsweredQuestion(
        question_id=str(record["question_id"]),
        seed=int(record["seed"]),
        samples=[Sample(**sample) for sample in record["samples"]],
        outcomes=[SideBySide(*(Grade(name) for name in names)) for names in record["outcomes"]],
        grader_version=str(record["grader_version"]),
    )
