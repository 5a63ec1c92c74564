import math

import pytest

from exgrpo.db.rows.chains_of_thought import Difficulty, EntropyPoint
from exgrpo.jobs.evaluation.analysis.report import area_under_curve, tabulate_validity


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
        point(True, 0.1, -math.log(2)), point(False, 0.3, -math.log(2)), point(False, 0.05, -math.log(4)),
        point(None, 7.0),
    ]  # fmt: skip
    line = {line.group: line for line in tabulate_validity(rows)}["medium"]
    assert (line.num_valid, line.num_invalid) == (1, 2)
    assert line.entropy_invalid == pytest.approx(0.175)
    assert line.entropy_auc == 0.5
    assert line.perplexity_valid == pytest.approx(2.0)
    assert line.perplexity_invalid == pytest.approx(3.0)
    assert line.perplexity_auc == 0.75
    beyond_float = tabulate_validity([point(True, 0.1, -2000.0), point(False, 0.1, -1.0)])[-1]
    assert (beyond_float.perplexity_valid, beyond_float.perplexity_auc) == (math.inf, 0.0)
