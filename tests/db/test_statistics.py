import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import t

from exgrpo.db.statistics import (
    MeanInterval,
    holm,
    interval_text,
    mean_interval,
    mean_of_sums,
    paired_difference,
    score_interval,
    standard_error,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 8, 30, 101, 1000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_quantiles_are_those_of_scipy(degrees, confidence):
    assert t_quantile(degrees, confidence) == pytest.approx(t.ppf((1 + confidence) / 2, degrees), rel=1e-8)


def test_interval_of_two_seeds_by_hand():
    interval = mean_interval([1.0, 3.0])
    assert interval.mean == 2.0
    assert interval.half == pytest.approx(12.706205, abs=1e-6)  # 12.7062 times sqrt(2) / sqrt(2)


def test_the_p_value_of_a_million_values_is_that_of_scipy():
    interval, num_values = MeanInterval(1.5, 1.0, (0.0,) * 10**6), 10**6
    expected = 2 * t.sf(1.5 * t.ppf(0.975, num_values - 1), num_values - 1)
    assert interval.p_value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("values", [[0.5], [2.0, 2.0], [0.0, 0.0], [0.3 - 0.1, 0.5 - 0.3]])
def test_one_seed_and_equal_ones_tell_no_scatter_and_no_difference_from_zero(values):
    interval = mean_interval(values)
    assert interval.mean == pytest.approx(values[0])
    assert math.isnan(interval.half)
    assert interval.p_value == 1.0


@pytest.mark.parametrize("values", [[0.1] * 7, [0.2, 0.9], [0.0, 0.5, 2.5, 2.6], [0.5], []])
def test_sums_give_the_interval_of_the_values(values):
    mean, half = mean_of_sums(len(values), sum(values), sum(value**2 for value in values))
    expected = mean_interval(values) if values else MeanInterval(math.nan, math.nan, ())
    assert (mean, half) == pytest.approx((expected.mean, expected.half), abs=1e-7, nan_ok=True)


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 0.2775), (10, 0.7225, 1.0)])
def test_none_and_all_of_ten_have_intervals_with_a_width(count, low, high):
    rate = wilson(count, 10)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)


def test_a_share_of_no_items_is_unknown():
    assert dataclasses.astuple(wilson(0, 0))[1:] == (0.0, 1.0, 0)


@pytest.mark.parametrize(("num_questions", "num_samples"), [(2, 1), (3, 2), (4, 4), (8, 2), (5, 3)])
def test_the_interval_of_a_score_holds_it_and_ends_within_0_and_1(num_questions, num_samples):
    for counts in itertools.combinations_with_replacement(range(num_samples + 1), num_questions):
        rates = [count / num_samples for count in counts]
        low, high = score_interval(np.mean(rates), standard_error(rates), num_questions)
        assert 0.0 <= low <= np.mean(rates) <= high <= 1.0
        assert high - low > 0.1


@pytest.mark.parametrize("num_questions", [2, 10, 40, 1000])
def test_more_right_answers_beyond_the_middle_give_no_wider_interval(num_questions):
    rates = [[1.0] * count + [0.0] * (num_questions - count) for count in range(num_questions // 2, num_questions + 1)]
    ends = [score_interval(np.mean(item), standard_error(item), num_questions) for item in rates]
    widths = [high - low for low, high in ends]
    assert widths == sorted(widths, reverse=True)
    # One of eight answers to one question is wrong: no surer than if all were right.
    nearly = [1.0] * (num_questions - 1) + [0.875]
    low, _ = score_interval(np.mean(nearly), standard_error(nearly), num_questions)
    assert low < ends[-1][0]


def test_the_interval_of_a_score_by_hand():
    # 39 of 40, with four added 41 of 44: sqrt(41 / 44 * 3 / 44 / 44) = 0.038002.
    assert score_interval(0.975, 0.025, 40) == pytest.approx((41 / 44 - 1.959964 * 0.038002, 1.0), abs=1e-5)
    assert score_interval(0.5, 0.01, 2500) == pytest.approx((0.4804, 0.5196), abs=1e-4)


@pytest.mark.parametrize(("score", "error"), [(math.nan, 0.1), (1.5, 0.1), (-1e300, 0.1), (math.inf, math.nan)])
def test_what_is_no_share_has_no_interval_and_an_endless_error_has_that_of_all(score, error):
    assert all(map(math.isnan, score_interval(score, error, 8)))
    assert score_interval(0.5, 1e300, 8) == (0.0, 1.0)


def test_an_interval_in_words_is_that_of_a_share_in_percent_or_of_a_number():
    assert interval_text((0.80614, 1.0)) == "80.6 to 100.0"
    assert interval_text((-0.0004, 0.125), 3, scale=1) == "0.000 to 0.125"
    assert interval_text((math.nan, math.nan)) == ""


@pytest.mark.parametrize("num_questions", [0, 1])
def test_a_score_of_fewer_than_two_questions_has_no_interval(num_questions):
    assert all(map(math.isnan, score_interval(0.75, math.nan, num_questions)))


def test_the_interval_of_a_difference_is_as_wide_as_the_spread_of_questions_says():
    # Differences of 0 and 1, half of each: standard error 0.5 / sqrt(100), half interval 1.96 times that.
    better = paired_difference([([0.0] * 100, [0.0, 1.0] * 50)])
    assert better == (0.5, pytest.approx(0.402, abs=0.02), pytest.approx(0.598, abs=0.02), 1 / 1000)


def test_the_interval_of_an_average_of_two_is_narrower_by_the_root_of_two():
    pair = ([0.0] * 100, [0.0, 1.0] * 50)
    one, two = paired_difference([pair]), paired_difference([pair, pair])
    assert (two.high - two.low) / (one.high - one.low) == pytest.approx(0.5**0.5, rel=0.06)


def test_pairing_matters_more_than_the_spread_between_questions():
    before = np.linspace(0.0, 0.9, 50)
    gained = paired_difference([(before, before + 0.05 + 0.01 * np.tile([-1, 1], 25))])
    assert 0.045 < gained.low < gained.high < 0.055


@pytest.mark.parametrize("sides", [([0.25] * 5, [0.25] * 5), ([0.0] * 5, [1.0] * 5), ([0.0], [1.0])])
def test_questions_that_all_change_alike_have_no_interval(sides):
    alike = paired_difference([sides])
    assert alike.value == sides[1][0] - sides[0][0]
    assert math.isnan(alike.low)
    assert alike.p_value == 1.0


def test_the_interval_leaves_out_no_difference_where_p_is_small_and_ends_within_one():
    generator = np.random.default_rng(4)
    for gain in (0.0, 0.1, 0.2, 0.25, 0.9):
        before = generator.integers(0, 5, 30) / 4
        tested = paired_difference([(before, np.clip(before + gain * generator.random(30) - 0.05, 0, 1))])
        assert (tested.p_value < 0.05) == (tested.low > 0 or tested.high < 0)
        assert -1 <= tested.low <= tested.value <= tested.high <= 1


def test_seeds_widen_the_interval_by_their_scatter_and_what_they_add_to_both_sides_cancels_where_they_are_paired():
    seeds = np.array([-0.2, 0.0, 0.2])[:, None]
    first = 0.4 + seeds + np.zeros((1, 60))
    second = first + 0.1 + 0.02 * np.tile([-1, 1], 30)
    # The standard error of three seeds is 0.2 / sqrt(3); both sides have it.
    apart, paired = (paired_difference([(first, second)], is_paired=is_paired) for is_paired in (False, True))
    assert apart.low < -0.1 < 0.3 < apart.high
    assert 0.09 < paired.low < paired.high < 0.11


def test_p_values_are_multiplied_by_the_number_of_tests_that_are_left():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02]) == [0.02]
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
