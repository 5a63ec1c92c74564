"""Agreement with Math-Verify's tests, as far as they compare one gold answer with the content of one box."""

import json
from pathlib import Path

import pytest

from bench.grading import verify_alone
from jobs.grading.outcomes import Outcome
from jobs.grading.pool import AnswerGrader
from jobs.grading.schemes import GradeItem, Scheme

pytestmark = pytest.mark.slow
CASES = json.loads((Path(__file__).parent / "math_verify_cases.json").read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def agreement():
    """Return for each case whether training, corrected and Math-Verify alone say what the suite expects."""
    items = [GradeItem(gold, rf"\boxed{{{answer}}}", "math") for gold, answer, _ in CASES]
    with AnswerGrader(seconds_per_answer=20.0) as grader:
        columns = [
            [outcome is Outcome.CORRECT for outcome in grader.grade(items, scheme)]
            for scheme in (Scheme.TRAINING, Scheme.CORRECTED)
        ]
    columns.append([verify_alone((item.gold, item.response), max_seconds=None) for item in items])
    verdicts = zip(CASES, *columns, strict=True)
    return {(gold, answer): [said == is_equal for said in three] for (gold, answer, is_equal), *three in verdicts}


def test_training_agrees_with_the_suite_as_often_as_math_verify_alone(agreement):
    num_training, num_corrected, num_alone = (sum(column) for column in zip(*agreement.values(), strict=True))
    assert len(agreement) == 179
    assert num_training >= num_alone >= 173
    assert num_corrected >= num_training


def test_corrected_is_right_wherever_training_is(agreement):
    assert [case for case, (training, corrected, _) in agreement.items() if training and not corrected] == []
