import math

import pytest
from scipy.stats import t, ttest_1samp

from db.statistics.intervals import (
    deviation_of_sums,
    gain_interval,
    half_of_mean,
    mean_interval,
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
    assert math.isnan(mean_interval([0.5]).p_value)


@pytest.mark.parametrize("values", [[1.0, 3.0], [-0.2, 0.1, 0.4, 0.3], [2.0, -2.0]])
def test_p_values_are_those_of_scipy(values):
    assert mean_interval(values).p_value == pytest.approx(ttest_1samp(values, 0.0).pvalue)


def test_equal_seeds_differ_from_zero_without_doubt():
    assert (mean_interval([2.0, 2.0]).p_value, mean_interval([0.0, 0.0]).p_value) == (0.0, 1.0)


def test_a_gain_of_questions_that_do_not_change_is_as_wide_as_their_scores():
    all_right = gain_interval([1.0] * 10, [1.0] * 10)
    assert all_right == pytest.approx((-0.27753, 0.27753), abs=1e-4)  # Wilson of 10 of 10 begins at .72247
    assert gain_interval([0.0] * 10, [0.0] * 10) == pytest.approx(all_right)
    none_to_all = gain_interval([0.0] * 10, [1.0] * 10)
    assert none_to_all == pytest.approx((1 - 0.27753 * math.sqrt(2), 1.0), abs=1e-4)


def test_a_gain_of_questions_that_keep_their_answers_is_narrower_than_of_others():
    before = [1.0] * 48 + [0.0] * 52
    same, other = [1.0] * 38 + [0.0] * 62, [0.0] * 62 + [1.0] * 38
    near, far = gain_interval(before, same), gain_interval(before, other)
    assert near[1] - near[0] < 0.6 * (far[1] - far[0])
    assert far[0] < near[0] < -0.1 < near[1] < 0.0 < far[1]


@pytest.mark.parametrize("rates", [[1.0], [0.0], [0.5]])
def test_a_gain_of_one_question_says_little(rates):
    low, high = gain_interval(rates, rates)
    assert -1.0 <= low < -0.4
    assert 0.4 < high <= 1.0


def test_no_values_have_no_interval():
    assert all(map(math.isnan, gain_interval([], [])))
    assert all(map(math.isnan, score_interval(math.nan, math.nan, 0)))
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    assert all(math.isnan(half_of_mean(deviation_of_sums(num, 0.0, 0.0), num)) for num in (0, 1))


@pytest.mark.parametrize("values", [[0.1] * 7, [0.2, 0.9], [0.0, 0.5, 2.5, 2.6]])
def test_sums_give_the_interval_of_the_values(values):
    deviation = deviation_of_sums(len(values), sum(values), sum(value**2 for value in values))
    assert half_of_mean(deviation, len(values)) == pytest.approx(mean_interval(values).half, abs=1e-7)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 0.2775), (10, 0.7225, 1.0)])
def test_none_and_all_of_ten_have_intervals_with_a_width(count, low, high):
    rate = wilson(count, 10)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)
