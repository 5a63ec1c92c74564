import math

import pytest
from scipy.stats import t, ttest_1samp

from db.statistics.intervals import mean_interval, t_quantile


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
    assert math.isnan(mean_interval([0.5]).p_value)


@pytest.mark.parametrize("values", [[1.0, 3.0], [-0.2, 0.1, 0.4, 0.3], [2.0, -2.0]])
def test_p_values_are_those_of_scipy(values):
    assert mean_interval(values).p_value == pytest.approx(ttest_1samp(values, 0.0).pvalue)


def test_equal_seeds_differ_from_zero_without_doubt():
    assert (mean_interval([2.0, 2.0]).p_value, mean_interval([0.0, 0.0]).p_value) == (0.0, 1.0)
