import numpy as np
import pytest

from bench.robust import interquartile_mean, probability_of_improvement, stratified_interval


def test_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5


def test_probability_of_improvement_counts_pairs_and_half_of_the_ties():
    first, second = np.array([1.0, 2.0]), np.array([2.0, 3.0])
    assert probability_of_improvement([first], [second]) == 3.5 / 4
    assert probability_of_improvement([first, second], [second, first]) == pytest.approx(0.5)


def test_runs_are_drawn_within_their_stratum():
    strata = [np.array([0.0, 0.0]), np.array([10.0, 10.0])]
    assert stratified_interval(strata, lambda parts: float(np.concatenate(parts).mean())) == (5.0, 5.0)
