from exgrpo_core.config import RewardKind
from exgrpo_core.step.collection import is_solved, num_correct, successes
from tests.exgrpo_core.builders import group, replay


def rewards_of(trajectories):
    return [trajectory.reward for trajectory in trajectories]


def test_correct_trajectories_are_stored():
    chosen = successes(group(0, [1.0, 0.0, 1.0, 0.9]), RewardKind.BINARY)
    assert rewards_of(chosen) == [1.0, 1.0]


def test_replayed_trajectory_counts_as_correct_but_is_not_stored_again():
    mixed = group(0, [0.0, 1.0, 0.0], replay(0, [9], [-1.0], [-1.0]))
    assert num_correct(mixed) == 2
    assert len(successes(mixed, RewardKind.BINARY)) == 1


def test_group_is_solved_when_every_trajectory_is_correct():
    assert is_solved(group(0, [1.0, 1.0]))
    assert not is_solved(group(0, [1.0, 0.0]))
    assert not is_solved(group(0, []))
    assert is_solved(group(0, [1.0], replay(0, [9], [-1.0], [-1.0])))
    assert not is_solved(group(0, [0.0], replay(0, [9], [-1.0], [-1.0])))


def test_continuous_rewards_store_what_is_above_the_mean():
    # The mean is 2; a reward of exactly the mean is not above it.
    assert rewards_of(successes(group(0, [1.0, 2.0, 3.0]), RewardKind.CONTINUOUS)) == [3.0]
    assert successes(group(0, [0.1] * 8), RewardKind.CONTINUOUS) == []


def test_mean_of_continuous_rewards_includes_the_replayed_trajectory():
    # Fresh 1, 2 and replayed 9: the mean is 4.
    mixed = group(0, [1.0, 2.0], replay(0, [9], [-1.0], [-1.0], reward=9.0))
    assert successes(mixed, RewardKind.CONTINUOUS) == []
