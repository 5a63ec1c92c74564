"""Agreement with Math-Verify's tests, as far as they compare one gold answer with the content of one box."""

import json
from pathlib import Path

import pytest

from bench.grading import verify_alone
from jobs.grading.answer_grader import AnswerGrader, GradeItem
from jobs.grading.reward_function import Grade

pytestmark = pytest.mark.slow
CASES = json.loads((Path(__file__).parent / "math_verify_cases.json").read_text(encoding="utf-8"))["cases"]


def test_training_agrees_with_the_suite_as_often_as_math_verify_alone():
    items = [GradeItem(gold, rf"\boxed{{{answer}}}", "math") for gold, answer, _ in CASES]
    expected = [is_equal for _, _, is_equal in CASES]
    with AnswerGrader(seconds_per_answer=20.0) as grader:
        by_training = [outcome is Grade.CORRECT for outcome in grader.grade(items)]
    alone = [verify_alone((item.gold, item.response), max_seconds=None) for item in items]
    num_training, num_alone = (sum(map(bool.__eq__, said, expected)) for said in (by_training, alone))
    assert len(items) == 179
    assert num_training >= num_alone >= 173
