import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from db.statistics.differences import (
    area_interval,
    area_under_curve,
    gain_reach,
    holm,
    independent_difference,
    score_difference,
)
from db.statistics.intervals import wilson


def test_interval_covers_no_difference_where_there_is_none_and_not_where_there_is():
    same = score_difference([([0.0, 1.0] * 50, [1.0, 0.0] * 50)])
    assert same.interval[0] < 0.0 < same.interval[1]
    assert same.p_value > 0.5
    better = score_difference([([0.0] * 50, [1.0] * 40 + [0.0] * 10)])
    assert better.interval[0] > 0.6
    assert better.p_value < 0.001


def test_interval_is_as_wide_as_the_spread_of_questions_says():
    # Differences of 0 and 1, half of each: standard error 0.5 / sqrt(100), half interval 1.96 times that.
    difference = score_difference([([0.0] * 100, [0.0, 1.0] * 50)])
    assert difference.interval == (
        pytest.approx(0.402, abs=0.02),
        pytest.approx(0.598, abs=0.02),
    )


@pytest.mark.parametrize(("num_questions", "half"), [(5, 0.43448), (10, 0.27753), (100, 0.03699)])
def test_interval_of_questions_that_do_not_change_has_a_width(num_questions, half):
    # z^2 / (n + z^2), z^2 = 3.8415
    for before in ([0.0] * num_questions, [1.0] * num_questions, [0.25] * num_questions, [0.0, 1.0] * num_questions):
        same = score_difference([(before[:num_questions], before[:num_questions])])
        assert (*same.interval, same.p_value) == pytest.approx((-half, half, 1.0), abs=1e-5)


def test_interval_of_questions_that_all_change_ends_at_one():
    # (1 - d)^2 n = z^2 (1 - d^2): d = (n - z^2) / (n + z^2)
    better = score_difference([([0.0] * 10, [1.0] * 10)])
    assert better.interval == pytest.approx((0.44493, 1.0), abs=1e-5)
    assert gain_reach([-1.0] * 10) == pytest.approx((0.0, 1 - 0.44493), abs=1e-5)


def least_losses(won, lost, change):
    """Return the likeliest share of losses where the share of wins is larger by a change, by a search."""

    def unlikelihood(share):
        chances = np.array([share + change, share, 1 - 2 * share - change]).clip(1e-300)
        return -np.array([won, lost, 1 - won - lost]) @ np.log(chances)

    ends = max(0.0, -change), (1 - change) / 2
    return minimize_scalar(unlikelihood, bounds=ends, method="bounded", options={"xatol": 1e-9}).x


@pytest.mark.parametrize(("num_won", "num_lost", "num_same"), [(1, 0, 43), (9, 1, 40), (5, 5, 10), (0, 7, 3)])
def test_of_counts_its_ends_are_where_the_score_statistic_is_196(num_won, num_lost, num_same):
    gaps = [1.0] * num_won + [-1.0] * num_lost + [0.0] * num_same
    mean, num = np.mean(gaps), len(gaps) - 1  # the variance of a sample of n is that of n - 1 items
    below, above = gain_reach(gaps)
    for end in (mean - below, mean + above):
        share = least_losses(num_won / len(gaps), num_lost / len(gaps), end)
        assert abs(mean - end) / np.sqrt((2 * share + end - end**2) / num) == pytest.approx(1.96, abs=1e-3)
    # At no difference it is McNemar's.
    tested = score_difference([([0.0] * len(gaps), gaps)])
    z = mean / np.sqrt((num_won + num_lost) / len(gaps) / num)
    assert tested.p_value == pytest.approx(2 * norm.sf(abs(z)), abs=1e-6)


def test_p_value_is_where_the_interval_ends_at_no_difference():
    generator = np.random.default_rng(4)
    for gain in (0.1, 0.2, 0.25, 0.3):
        before = generator.integers(0, 5, 30) / 4
        tested = score_difference([(before, np.clip(before + gain * generator.random(30), 0, 1))])
        assert (tested.p_value < 0.05) == (tested.interval[0] > 0)


def test_no_questions_have_no_interval():
    assert all(map(np.isnan, gain_reach([])))


def test_two_shares_of_different_items_are_compared_as_newcombe_does():
    # His example (a): 56 of 70 against 48 of 80, difference .2, method 10: .0524 to .3339.
    ends = independent_difference(wilson(48, 80), wilson(56, 70))
    assert ends == pytest.approx((0.0524, 0.3339), abs=1e-4)
    # (h): 0 of 10 against 10 of 10: .6075 to 1.
    assert independent_difference(wilson(0, 10), wilson(10, 10)) == pytest.approx((0.6075, 1.0), abs=1e-4)


def test_interval_of_an_average_of_two_is_narrower_by_the_root_of_two():
    one, two = ([0.0] * 100, [0.0, 1.0] * 50), ([0.0] * 100, [1.0, 0.0] * 50)
    difference = score_difference([one, two])
    assert np.ptp(difference.interval) == pytest.approx(2 * 1.96 * 0.05 / 2**0.5, abs=0.02)


def test_pairing_matters_more_than_the_spread_between_questions():
    hard_and_easy = [0.0, 1.0] * 50
    difference = score_difference([(hard_and_easy, [rate * 0.9 for rate in hard_and_easy])])
    assert difference.interval[1] < 0.0


def test_different_numbers_of_questions_are_refused():
    with pytest.raises(ValueError, match="1 and 2"):
        score_difference([([1.0], [1.0, 0.0])])


def test_interval_with_seeds_is_as_wide_as_their_spread_says():
    # Seeds of means 0.4 and 0.6 whose questions do not differ: standard error 0.1, t of one degree of freedom 12.7.
    seeds = [[0.4] * 50, [0.6] * 50]
    difference = score_difference([(seeds, [0.5] * 50)])
    assert np.ptp(difference.interval) == pytest.approx(2 * 12.7 * 0.1, rel=0.1)


def test_scatter_of_samples_is_not_counted_twice():
    # The two seeds differ on each question and not in their means: nothing is left for the seeds.
    seeds = [[0.0, 1.0] * 50, [1.0, 0.0] * 50]
    difference = score_difference([(seeds, [0.5] * 100)])
    assert difference.interval == pytest.approx((-0.03699, 0.03699), abs=1e-5)  # of 100 equal questions


def test_what_seeds_add_to_both_sides_cancels_where_they_are_paired():
    # Seed by seed the second is 0.2 and 0.4 better: standard error 0.1, t of one degree of freedom 12.7.
    seeds = [[0.1] * 50, [0.5] * 50], [[0.3] * 50, [0.9] * 50]
    paired = score_difference([seeds], is_paired=True)
    assert paired.difference == pytest.approx(0.3)
    assert np.ptp(paired.interval) == pytest.approx(2 * 12.7 * 0.1, rel=0.1)
    unpaired = score_difference([seeds])
    # Standard errors 0.2 and 0.3.
    assert np.ptp(unpaired.interval) == pytest.approx(2 * 12.7 * np.hypot(0.2, 0.3), rel=0.1)
    assert unpaired.difference == paired.difference


def simulated(generator, num_seeds, scatter, of_both=0.0, num_questions=100, num_samples=4):
    """Return the rates of two sides whose questions, seeds and both together scatter in log-odds; the second gains.

    `of_both` is the scatter of what seed s adds to both sides.
    """
    questions = generator.normal(0, 2, num_questions)
    gains = generator.normal(0.5, 0.5, num_questions)
    shared = generator.normal(0, of_both, (num_seeds, 1)) if of_both else 0.0
    sides = []
    for odds, of_seeds in zip((questions, questions + gains), scatter, strict=True):
        seeds = generator.normal(0, of_seeds, (num_seeds, 1)) + generator.normal(0, 0.5, (num_seeds, num_questions))
        seeds += shared
        sides.append(generator.binomial(num_samples, 1 / (1 + np.exp(-odds - seeds))) / num_samples)
    return tuple(sides)


def mean_rate(generator, mean, *scatters):
    """Return the mean correctness rate where log-odds have this mean and independent parts of these deviations."""
    return (1 / (1 + np.exp(-generator.normal(mean, np.hypot.reduce(scatters), 2_000_000)))).mean()


ALIKE, APART = (0.3, 0.3), (0.1, 0.6)


@pytest.mark.parametrize(
    ("num_seeds", "scatter", "of_both", "is_paired"),
    [
        (1, (0.0, 0.0), 0.0, False), (2, ALIKE, 0.0, False), (3, ALIKE, 0.0, False), (5, ALIKE, 0.0, False),
        (3, APART, 0.0, False), (2, ALIKE, 1.0, True), (3, ALIKE, 1.0, True), (3, ALIKE, 0.0, True),
        (3, (0.0, 0.0), 1.0, True), (5, APART, 1.0, True),
    ],
)  # fmt: skip
def test_95_percent_intervals_cover_the_true_difference_in_94_to_99_percent(num_seeds, scatter, of_both, is_paired):
    generator = np.random.default_rng(7)
    true = mean_rate(generator, 0.5, 2, 0.5, 0.5, scatter[1], of_both)
    true -= mean_rate(generator, 0, 2, 0.5, scatter[0], of_both)
    num_covered = 0
    for _ in range(1000):
        sides = simulated(generator, num_seeds, scatter, of_both)
        ends = score_difference([sides], is_paired=is_paired).interval
        num_covered += ends[0] <= true <= ends[1]
    assert 940 <= num_covered <= 990


def test_p_values_are_multiplied_by_the_number_of_tests_that_are_left():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02]) == [0.02]
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_interval_of_an_area_covers_what_was_drawn_as_often_as_it_says_and_is_right_at_the_edge():
    rng, area, covered = np.random.default_rng(3), 0.7602, 0
    for _ in range(300):
        above, below = rng.normal(1.0, 1.0, 15), rng.normal(0.0, 1.0, 40)
        low, high = area_interval(area_under_curve(above, below), 15, 40)
        covered += low <= area <= high
    assert 0.92 < covered / 300 < 0.99
    low, high = area_interval(1.0, 10, 10)
    assert (high, 0.6 < low < 0.9) == (1.0, True)
