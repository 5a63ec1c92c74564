import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.experience_management.bucket_sampler import correctness_rates
from exgrpo_core.step.collection import correct_bucket, spread_buckets


def test_rates_are_those_of_buckets_0_to_k():
    assert correctness_rates(4).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_bucket_of_a_whole_group_is_its_number_of_correct_trajectories():
    assert [correct_bucket(k, 8, 8) for k in range(9)] == list(range(9))


@pytest.mark.parametrize(
    ("num_correct", "group_size", "expected"),
    [(0, 3, 0), (1, 4, 2), (3, 4, 6), (4, 4, 8), (1, 100, 1), (99, 100, 7), (1, 16, 1), (5, 16, 2), (7, 16, 4)],
)
def test_group_of_another_size_is_scaled_to_k(num_correct, group_size, expected):
    assert correct_bucket(num_correct, group_size, 8) == expected


@pytest.mark.parametrize(("num_correct", "group_size"), [(-1, 8), (9, 8), (0, 0)])
def test_impossible_counts_are_refused(num_correct, group_size):
    with pytest.raises(ValueError, match="num_correct"):
        correct_bucket(num_correct, group_size, 8)


def test_spread_is_scaled_over_the_batch_and_rounded_half_to_even():
    # (sigma - 1) / (3 - 1) * 8 = 0, 8, 4, 0.5 -> 0, 1.5 -> 2, 2.5 -> 2
    spreads = np.array([1.0, 3.0, 2.0, 1.125, 1.375, 1.625])
    assert spread_buckets(spreads, 8, 1e-6).tolist() == [0, 8, 4, 0, 2, 2]


def test_batch_without_differences_in_spread_is_in_bucket_0():
    assert spread_buckets(np.full(3, 0.7), 8, 1e-6).tolist() == [0, 0, 0]


def test_epsilon_is_the_smallest_divisor():
    # (0.2 - 0.1) / max(0.1, 0.4) * 8 = 2
    assert spread_buckets(np.array([0.1, 0.2]), 8, 0.4).tolist() == [0, 2]


def test_no_groups_have_no_buckets():
    assert spread_buckets(np.array([]), 8, 1e-6).tolist() == []


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_spread_that_is_no_standard_deviation_is_refused(bad):
    with pytest.raises(ValueError, match="reward_std"):
        spread_buckets(np.array([0.1, bad]), 8, 1e-6)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True), st.integers(2, 32))
def test_widest_spread_is_in_bucket_k_and_order_is_kept(spreads, rollouts):
    buckets = spread_buckets(np.array(spreads, dtype=np.float64), rollouts, 1e-6)
    assert buckets.min() == 0
    assert buckets.max() == rollouts
    assert np.all(np.diff(buckets[np.argsort(spreads)]) >= 0)
