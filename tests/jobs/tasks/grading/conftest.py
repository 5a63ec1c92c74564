import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader


def read_pairs(path: Path) -> list[tuple[str, ...]]:
    """Return gold answers, other answers and whether people call these correct, C, or wrong, W."""
    with path.open(encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) == 3]


WRITTEN_PAIRS = read_pairs(Path(__file__).parent / "written_pairs.tsv")


@pytest.fixture(scope="session")
def grader() -> Iterator[AnswerGrader]:
    """A grader whose process, slow to start, serves the tests that change nothing about it."""
    with AnswerGrader(seconds_per_answer=60.0) as shared:
        yield shared
