import pytest

from bench.grading import gold_items
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, Scheme
from exgrpo.jobs.tasks.grading.reward_function import Grade

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", list(Scheme))
def test_every_provided_gold_is_a_correct_answer_to_itself(shared_dir, scheme):
    items = gold_items(shared_dir / "data" / "benchmarks")
    with AnswerGrader() as grader:
        outcomes = grader.grade([item for _, item in items], scheme)
    wrong = [item for item, outcome in zip(items, outcomes, strict=True) if outcome is not Grade.CORRECT]
    assert len(items) == 14794
    assert wrong == []
