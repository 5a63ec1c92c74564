import math

import pytest
from scipy.stats import t, ttest_1samp

from db.statistics.intervals import (
    MeanInterval,
    mean_interval,
    mean_of_sums,
    score_interval,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 8, 30, 101])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_quantiles_are_those_of_scipy(degrees, confidence):
    assert t_quantile(degrees, confidence) == pytest.approx(t.ppf((1 + confidence) / 2, degrees), rel=1e-8)


def test_interval_of_two_seeds_by_hand():
    interval = mean_interval([1.0, 3.0])
    assert interval.mean == 2.0
    assert interval.half == pytest.approx(12.706205, abs=1e-6)  # 12.7062 times sqrt(2) / sqrt(2)
    assert interval.worst == 1.0


def test_a_single_seed_has_no_interval():
    assert math.isnan(mean_interval([0.5]).half)
    assert mean_interval([0.5]).p_value == 1.0


@pytest.mark.parametrize("values", [[1.0, 3.0], [-0.2, 0.1, 0.4, 0.3], [2.0, -2.0]])
def test_p_values_are_those_of_scipy(values):
    assert mean_interval(values).p_value == pytest.approx(ttest_1samp(values, 0.0).pvalue)


@pytest.mark.parametrize("values", [[2.0, 2.0], [0.0, 0.0], [0.3 - 0.1, 0.5 - 0.3]])
def test_equal_seeds_tell_no_scatter_and_no_difference_from_zero(values):
    interval = mean_interval(values)
    assert interval.mean == pytest.approx(values[0])
    assert math.isnan(interval.half)
    assert interval.p_value == 1.0


def test_no_values_have_no_interval():
    assert all(map(math.isnan, score_interval(math.nan, math.nan, 0)))
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[0.1] * 7, [0.2, 0.9], [0.0, 0.5, 2.5, 2.6], [0.5], []])
def test_sums_give_the_interval_of_the_values(values):
    mean, half = mean_of_sums(len(values), sum(values), sum(value**2 for value in values))
    expected = mean_interval(values) if values else MeanInterval(math.nan, math.nan, ())
    assert (mean, half) == pytest.approx((expected.mean, expected.half), abs=1e-7, nan_ok=True)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 0.2775), (10, 0.7225, 1.0)])
def test_none_and_all_of_ten_have_intervals_with_a_width(count, low, high):
    rate = wilson(count, 10)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)
