from collections.abc import Iterator

import pytest

from jobs.tasks.grading.answer_grader import AnswerGrader


@pytest.fixture(scope="session")
def grader() -> Iterator[AnswerGrader]:
    """A grader whose process, slow to start, serves the tests that change nothing about it."""
    with AnswerGrader(seconds_per_answer=60.0) as shared:
        yield shared
