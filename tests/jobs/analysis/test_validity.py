import math

import pytest

from jobs.analysis.facts import Difficulty, difficulty_of
from jobs.analysis.validity import area_under_curve, tabulate_code, tabulate_validity
from tests.jobs.analysis.facts import fact


@pytest.mark.parametrize(
    ("rate", "difficulty"),
    [
        (0.0, None),
        (0.125, Difficulty.HARD),
        (0.25, Difficulty.HARD),
        (0.375, Difficulty.MEDIUM),
        (0.75, Difficulty.MEDIUM),
        (0.875, Difficulty.EASY),
        (1.0, None),
    ],
)
def test_difficulty_follows_the_papers_brackets(rate, difficulty):
    assert difficulty_of(rate) is difficulty


def test_area_under_curve_is_the_share_of_pairs_in_order_with_ties_counted_half():
    assert area_under_curve([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert area_under_curve([1.0], [1.0]) == 0.5
    # Pairs: 2>1, 2<3, 3>1, 3=3 give 1 + 0 + 1 + 1/2 of 4.
    assert area_under_curve([2.0, 3.0], [1.0, 3.0]) == 0.625
    assert math.isnan(area_under_curve([], [1.0]))


def test_entropy_and_correctness_of_chains_are_split_by_code_and_difficulty():
    rows = [
        fact(1, mean_entropy=0.1, is_valid=True),
        fact(2, mean_entropy=0.3, is_valid=False),
        fact(3, mean_entropy=0.5, has_code=True, is_valid=False),
        fact(4, mean_entropy=0.9, has_code=True, is_valid=None, correctness_rate=0.875),
        fact(5, mean_entropy=9.0, is_correct=False),
        fact(6, mean_entropy=0.2, correctness_rate=1.0),
    ]
    lines = {(line.group, line.has_code): line for line in tabulate_code(rows)}
    medium = lines["medium", False]
    assert medium.mean_entropy == pytest.approx(0.2)
    assert (medium.num_trajectories, medium.num_judged, medium.cot_correctness) == (2, 2, 0.5)
    assert lines["medium", True].cot_correctness == 0.0
    easy = lines["easy", True]
    assert (easy.num_trajectories, easy.num_judged) == (1, 0)
    assert math.isnan(easy.cot_correctness)
    assert lines["all", False].mean_entropy == pytest.approx(0.2)
    assert lines["all", False].num_trajectories == 3


def test_valid_against_invalid_is_measured_by_both_signals():
    rows = [
        fact(1, is_valid=True, mean_entropy=0.1, mean_log_prob=-math.log(2)),
        fact(2, is_valid=False, mean_entropy=0.3, mean_log_prob=-math.log(2)),
        fact(3, is_valid=False, mean_entropy=0.05, mean_log_prob=-math.log(4)),
        fact(4, is_valid=None, mean_entropy=7.0),
    ]
    line = {line.group: line for line in tabulate_validity(rows)}["medium"]
    assert (line.num_valid, line.num_invalid) == (1, 2)
    assert line.entropy_invalid == pytest.approx(0.175)
    assert line.entropy_auc == 0.5
    assert line.perplexity_valid == pytest.approx(2.0)
    assert line.perplexity_invalid == pytest.approx(3.0)
    assert line.perplexity_auc == 0.75
