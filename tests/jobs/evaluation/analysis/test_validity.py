import math

import pytest

from db.rows.chains_of_thought import Difficulty, EntropyPoint, WrongAnswer
from jobs.evaluation.analysis.validity import area_under_curve, read_wrong_answers, tabulate_validity
from jobs.tasks.word_problems.question_set import make_stories


def point(is_valid: bool | None, mean_entropy: float, mean_log_prob: float = -0.1) -> EntropyPoint:
    return EntropyPoint(Difficulty.MEDIUM, False, is_valid, mean_entropy, mean_log_prob)


def test_area_under_curve_is_the_share_of_pairs_in_order_with_ties_counted_half():
    assert area_under_curve([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert area_under_curve([1.0], [1.0]) == 0.5
    # Pairs: 2>1, 2<3, 3>1, 3=3 give 1 + 0 + 1 + 1/2 of 4.
    assert area_under_curve([2.0, 3.0], [1.0, 3.0]) == 0.625
    assert math.isnan(area_under_curve([], [1.0]))


def test_valid_against_invalid_is_measured_by_both_signals():
    rows = [
        point(True, 0.1, -math.log(2)),
        point(False, 0.3, -math.log(2)),
        point(False, 0.05, -math.log(4)),
        point(None, 7.0),
    ]
    line = {line.group: line for line in tabulate_validity(rows)}["medium"]
    assert (line.num_valid, line.num_invalid) == (1, 2)
    assert line.entropy_invalid == pytest.approx(0.175)
    assert line.entropy_auc == 0.5
    assert line.perplexity_valid == pytest.approx(2.0)
    assert line.perplexity_invalid == pytest.approx(3.0)
    assert line.perplexity_auc == 0.75
    beyond_float = tabulate_validity([point(True, 0.1, -2000.0), point(False, 0.1, -1.0)])[-1]
    assert (beyond_float.perplexity_valid, beyond_float.perplexity_auc) == (math.inf, 0.0)


CHAIN = "Q6a*2b+3:"


def wrong(text, prompt=CHAIN, details=None):
    return WrongAnswer(1, 1, 0, prompt, {"modulus": 10} if details is None else details, text, 0.1, 0.5)


def test_nearest_misses_come_first_and_steps_are_counted_up_to_the_first_fault():
    # 6 * 2 = 2 and 2 + 3 = 5, modulo 10.
    at_first, at_last, only_answer = r"6;a*2=3;b+3=6;\boxed{6}", r"6;a*2=2;b+3=6;\boxed{6}", r"6;a*2=2;b+3=5;\boxed{4}"
    read = read_wrong_answers([wrong(at_first), wrong(at_last), wrong(only_answer)])
    assert [item.answer.text for item in read] == [only_answer, at_last, at_first]
    assert [(item.num_good_steps, item.num_steps, item.num_missing) for item in read] == [
        (2, 2, 0),
        (1, 2, 1),
        (0, 2, 2),
    ]


def test_stories_are_read_by_their_oracle_and_tasks_without_one_have_none():
    (story,) = make_stories(1, 0, 2, 2, "small")
    details = {"data_source": "word_problems"} | story.details()
    assert read_wrong_answers([wrong("no step at all", details=details)]) == []
    (item,) = read_wrong_answers([wrong(r"1 + 1 = 3. \boxed{3}", details=details)])
    assert (item.num_good_steps, item.num_steps) == (0, len(story.steps))
    assert read_wrong_answers([wrong("text", details={}), wrong("text", prompt="What is 1+1?")]) == []
