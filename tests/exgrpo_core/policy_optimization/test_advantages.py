import numpy as np
import pytest

from exgrpo_core import group_advantages
from exgrpo_core.config import EASY, HARD, MEDIUM
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages, is_in_range
from tests.exgrpo_core.builders import group, replay, small_config


def test_advantage_is_reward_minus_group_mean():
    advantages = group_advantages(np.array([[1, 0, 0, 0], [0, 4, 4, 4]]))
    np.testing.assert_allclose(advantages, [[0.75, -0.25, -0.25, -0.25], [-3, 1, 1, 1]])


def test_grpo_divides_by_the_sample_standard_deviation():
    # mean 1/4, squared deviations 9/16 + 3/16 = 12/16, over K - 1 = 3 -> 1/4, root 1/2.
    np.testing.assert_allclose(
        group_advantages(np.array([1, 0, 0, 0]), normalize_by_std=True), [1.5, -0.5, -0.5, -0.5], rtol=1e-5
    )


@pytest.mark.parametrize("num_rewards", [7, 8])
def test_close_rewards_far_from_zero_still_sum_to_zero(num_rewards):
    scores = 20.0 + 0.01 * np.random.default_rng(0).random((1000, num_rewards))
    advantages = group_advantages(scores.astype(np.float32))
    assert np.abs(advantages.sum(axis=-1)).max() < 1e-4 * np.abs(advantages).sum(axis=-1).min()
    assert not group_advantages(np.full(num_rewards, 0.99, dtype=np.float32)).any()


@pytest.mark.parametrize("rewards", [[1.0], [1.0, float("nan")], [float("inf"), 0.0]])
def test_rewards_that_compare_nothing_are_refused(rewards):
    with pytest.raises(ValueError, match="rewards"):
        group_advantages(np.array(rewards))


@pytest.mark.parametrize(
    ("rate", "names"),
    [(0.0, set()), (0.125, {"hard"}), (0.25, {"hard"}), (0.375, {"medium"}), (0.75, {"medium", "easy"}), (1.0, set())],
)
def test_masks_hold_the_ends_that_the_paper_names(rate, names):
    ranges = {"easy": EASY, "medium": MEDIUM, "hard": HARD}
    assert {name for name, mask in ranges.items() if is_in_range(rate, mask)} == names


def test_masked_group_gets_no_advantage_and_a_replayed_trajectory_shares_its_groups_mean():
    config = small_config(experience_ratio=0.0, mask_range=HARD, batch_size=2, mini_batch_size=2)
    groups = [group(0, [1, 0, 0, 0]), group(1, [1, 1, 0, 0])]
    assign_advantages(groups, config)
    np.testing.assert_allclose(groups[0].advantages, [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(groups[1].advantages, 0)
    mixed = [group(0, [0, 0, 0], replay(0, [5], [-1.0], [-1.0]))]
    assign_advantages(mixed, small_config())
    np.testing.assert_allclose(mixed[0].advantages, [-0.25, -0.25, -0.25, 0.75])
