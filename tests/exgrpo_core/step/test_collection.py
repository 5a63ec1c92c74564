import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.config import RewardKind
from exgrpo_core.step.collection import correct_bucket, is_solved, num_correct, spread_buckets, successes
from tests.exgrpo_core.builders import group, replay

REPLAY = replay(0, [9], [-1.0], [-1.0])


def rewards_of(group, kind):
    return [trajectory.reward for trajectory in successes(group, kind)]


def test_correct_fresh_trajectories_are_stored_and_a_replayed_one_counts_but_is_not_stored_again():
    assert rewards_of(group(0, [1.0, 0.0, 1.0, 0.9]), RewardKind.BINARY) == [1.0, 1.0]
    mixed = group(0, [0.0, 1.0, 0.0], REPLAY)
    assert num_correct(mixed) == 2
    assert rewards_of(mixed, RewardKind.BINARY) == [1.0]


def test_group_is_solved_when_every_trajectory_is_correct_without_help():
    helped = group(0, [1.0, 1.0])
    helped.trajectories[1].num_prefix_tokens = 1
    solved = [
        group(0, [1.0, 1.0]), group(0, [1.0, 0.0]), group(0, []), group(0, [1.0], REPLAY), group(0, [0.0], REPLAY),
        helped,
    ]  # fmt: skip
    assert list(map(is_solved, solved)) == [True, False, False, True, False, False]


def test_continuous_rewards_store_what_is_above_the_mean_of_the_whole_group():
    # The mean is 2; a reward of exactly the mean is not above it.
    assert rewards_of(group(0, [1.0, 2.0, 3.0]), RewardKind.CONTINUOUS) == [3.0]
    assert rewards_of(group(0, [0.1] * 8), RewardKind.CONTINUOUS) == []
    # Fresh 1, 2 and replayed 9: the mean is 4.
    mixed = group(0, [1.0, 2.0], replay(0, [9], [-1.0], [-1.0], reward=9.0))
    assert rewards_of(mixed, RewardKind.CONTINUOUS) == []


@pytest.mark.parametrize(
    ("num_correct", "group_size", "expected"),
    [(5, 8, 5), (0, 3, 0), (1, 4, 2), (4, 4, 8), (1, 100, 1), (99, 100, 7), (1, 16, 1), (5, 16, 2), (7, 16, 4)],
)
def test_bucket_is_the_number_of_correct_trajectories_scaled_to_k(num_correct, group_size, expected):
    assert correct_bucket(num_correct, group_size, 8) == expected


def test_spread_is_scaled_over_the_batch_and_rounded_half_to_even():
    # (sigma - 1) / (3 - 1) * 8 = 0, 8, 4, 0.5 -> 0, 1.5 -> 2, 2.5 -> 2
    spreads = np.array([1.0, 3.0, 2.0, 1.125, 1.375, 1.625])
    assert spread_buckets(spreads, 8, 1e-6).tolist() == [0, 8, 4, 0, 2, 2]
    assert spread_buckets(np.full(3, 0.7), 8, 1e-6).tolist() == [0, 0, 0]
    # Epsilon is the smallest divisor: (0.2 - 0.1) / max(0.1, 0.4) * 8 = 2
    assert spread_buckets(np.array([0.1, 0.2]), 8, 0.4).tolist() == [0, 2]


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True), st.integers(2, 32))
def test_widest_spread_is_in_bucket_k_and_order_is_kept(spreads, rollouts):
    buckets = spread_buckets(np.array(spreads, dtype=np.float64), rollouts, 1e-6)
    assert (buckets.min(), buckets.max()) == (0, rollouts)
    assert np.all(np.diff(buckets[np.argsort(spreads)]) >= 0)
