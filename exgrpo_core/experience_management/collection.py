"""Experience collection: which trajectories of a group are worth keeping (Algorithm 1, lines 24 to 29)."""

import numpy as np

from exgrpo_core.config import RewardKind
from exgrpo_core.methods.protocols import Collected
from exgrpo_core.types import RolloutGroup, Trajectory

CORRECT_REWARD = 1.0
"""Reward of a correct trajectory where rewards are binary."""


def num_correct(group: RolloutGroup) -> int:
    """Return s of Algorithm 1: the correct trajectories of a group, the replayed one counted."""
    num_fresh = sum(trajectory.reward >= CORRECT_REWARD for trajectory in group.trajectories)
    return num_fresh + sum(replay.experience.reward >= CORRECT_REWARD for replay in group.replays)


def is_solved(group: RolloutGroup) -> bool:
    """Whether every trajectory of the group is correct: its question is retired."""
    return num_correct(group) == group.num_trajectories > 0


def to_store(group: RolloutGroup, collected: Collected, reward_kind: RewardKind) -> list[Trajectory]:
    """Return the fresh trajectories to store of a group that is collected from."""
    return successes(group, reward_kind) if collected is Collected.SUCCESSES else group.trajectories


def successes(group: RolloutGroup, reward_kind: RewardKind) -> list[Trajectory]:
    """Return the fresh trajectories to store: the correct ones, or those above the group's mean reward.

    The mean of continuous rewards is over the whole group, the replayed trajectory included.
    """
    if reward_kind is RewardKind.BINARY:
        return [trajectory for trajectory in group.trajectories if trajectory.reward >= CORRECT_REWARD]
    mean = float(np.mean(group.rewards, dtype=np.float64))
    return [trajectory for trajectory in group.trajectories if float(np.float32(trajectory.reward)) > mean]
