import numpy as np
import pytest

from db.statistics.differences import area_interval, area_under_curve, hierarchical_bootstrap, holm


def test_interval_covers_no_difference_where_there_is_none_and_not_where_there_is():
    same = hierarchical_bootstrap([([0.0, 1.0] * 50, [1.0, 0.0] * 50)])
    assert same.low < 0.0 < same.high
    assert same.p_value > 0.5
    better = hierarchical_bootstrap([([0.0] * 50, [1.0] * 40 + [0.0] * 10)])
    assert better.low > 0.6
    assert better.p_value < 0.001


def test_interval_is_as_wide_as_the_spread_of_questions_says():
    # Differences of 0 and 1, half of each: standard error 0.5 / sqrt(100), half interval 1.96 times that.
    difference = hierarchical_bootstrap([([0.0] * 100, [0.0, 1.0] * 50)])
    assert (difference.low, difference.high) == (pytest.approx(0.402, abs=0.02), pytest.approx(0.598, abs=0.02))


def test_interval_of_an_average_of_two_is_narrower_by_the_root_of_two():
    one, two = ([0.0] * 100, [0.0, 1.0] * 50), ([0.0] * 100, [1.0, 0.0] * 50)
    difference = hierarchical_bootstrap([one, two])
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * 0.05 / 2**0.5, abs=0.02)


def test_pairing_matters_more_than_the_spread_between_questions():
    hard_and_easy = [0.0, 1.0] * 50
    difference = hierarchical_bootstrap([(hard_and_easy, [rate * 0.9 for rate in hard_and_easy])])
    assert difference.high < 0.0


def test_different_numbers_of_questions_are_refused():
    with pytest.raises(ValueError, match="1 and 2"):
        hierarchical_bootstrap([([1.0], [1.0, 0.0])])


def test_interval_with_seeds_is_as_wide_as_their_spread_says():
    # Seeds of means 0.4 and 0.6 whose questions do not differ: standard error 0.1, t of one degree of freedom 12.7.
    seeds = [[0.4] * 50, [0.6] * 50]
    difference = hierarchical_bootstrap([(seeds, [0.5] * 50)])
    assert difference.high - difference.low == pytest.approx(2 * 12.7 * 0.1, rel=0.1)


def test_scatter_of_samples_is_not_counted_twice():
    # The two seeds differ on each question and not in their means: nothing is left for the seeds.
    seeds = [[0.0, 1.0] * 50, [1.0, 0.0] * 50]
    difference = hierarchical_bootstrap([(seeds, [0.5] * 100)])
    assert (difference.low, difference.high) == (0.0, 0.0)


def test_what_seeds_add_to_both_sides_cancels_where_they_are_paired():
    # Seed by seed the second is 0.2 and 0.4 better: standard error 0.1, t of one degree of freedom 12.7.
    seeds = [[0.1] * 50, [0.5] * 50], [[0.3] * 50, [0.9] * 50]
    paired = hierarchical_bootstrap([seeds], is_paired=True)
    assert paired.difference == pytest.approx(0.3)
    assert paired.high - paired.low == pytest.approx(2 * 12.7 * 0.1, rel=0.1)
    unpaired = hierarchical_bootstrap([seeds])
    # Standard errors 0.2 and 0.3; a sum of multiples of t of one degree of freedom is their sum's multiple of it.
    assert unpaired.high - unpaired.low == pytest.approx(2 * 12.7 * (0.2 + 0.3), rel=0.1)
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
def test_95_percent_intervals_cover_the_true_difference_in_93_to_97_percent(num_seeds, scatter, of_both, is_paired):
    generator = np.random.default_rng(7)
    true = mean_rate(generator, 0.5, 2, 0.5, 0.5, scatter[1], of_both)
    true -= mean_rate(generator, 0, 2, 0.5, scatter[0], of_both)
    num_covered = 0
    for _ in range(1000):
        sides = simulated(generator, num_seeds, scatter, of_both)
        difference = hierarchical_bootstrap([sides], num_resamples=1000, is_paired=is_paired)
        num_covered += difference.low <= true <= difference.high
    assert 930 <= num_covered <= 970


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
