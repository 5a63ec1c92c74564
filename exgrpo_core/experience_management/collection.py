"""Experience collection (Algorithm 1, lines 24 to 29): when it starts, a group's bucket, and what of it is kept."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exgrpo_core.config import RewardKind
from exgrpo_core.methods.protocols import Collected
from exgrpo_core.types import Float64Array, Int64Array, RolloutGroup, Trajectory


def correct_bucket(num_correct: int, group_size: int, rollouts_per_question: int) -> int:
    """Return the bucket of a group with `num_correct` correct trajectories: k itself where the group holds K.

    A group of another size is scaled to K and rounded half to even, but only one without any success is in bucket 0
    and only one without any failure in bucket K.

    Raises:
        ValueError: More correct trajectories than the group holds, or an empty group.
    """
    if group_size < 1 or not 0 <= num_correct <= group_size:
        raise ValueError(f"num_correct: expected 0 to group_size = {group_size}, got {num_correct}.")
    if group_size == rollouts_per_question or num_correct == 0:
        return num_correct
    if num_correct == group_size:
        return rollouts_per_question
    scaled = round(num_correct * rollouts_per_question / group_size)
    return min(max(scaled, 1), rollouts_per_question - 1)


def spread_buckets(reward_std: Float64Array, rollouts_per_question: int, epsilon: float) -> Int64Array:
    """Return buckets 0..K of continuous rewards by their spread within a question, min-max scaled over the batch.

    round(K (sigma_q - sigma_min) / max(sigma_max - sigma_min, epsilon)); a half rounds to the even bucket, which is
    NumPy's rule and the only point that the paper leaves open. Source: appendix, "Extension to RL with Continuous
    Rewards".

    Args:
        reward_std: Standard deviation of the rewards of each question of the batch, at least 0.
        rollouts_per_question: K.
        epsilon: Smallest divisor, above 0: it keeps a batch without any difference in spread in bucket 0.

    Raises:
        ValueError: `reward_std` holds a number that is negative or not finite.
    """
    spreads = np.asarray(reward_std, dtype=np.float64)
    if spreads.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.all(np.isfinite(spreads)) or spreads.min() < 0.0:
        raise ValueError("reward_std: expected finite numbers of at least 0; check the rewards of this batch.")
    low, high = spreads.min(), spreads.max()
    scaled = (spreads - low) / max(high - low, epsilon)
    buckets: Int64Array = np.rint(scaled * rollouts_per_question).astype(np.int64)
    return buckets


class DelayedStart:
    """A switch: it opens when one batch's Pass@1 is above `start_pass_rate`, and never closes again.

    Without a rate (None) it is open from the beginning.
    """

    def __init__(self, start_pass_rate: float | None) -> None:
        self._start_pass_rate = start_pass_rate
        self._is_open = start_pass_rate is None

    @property
    def is_open(self) -> bool:
        """Whether experience is collected and replayed."""
        return self._is_open

    def observe(self, pass_at_1: float) -> None:
        """Open the switch if one batch's Pass@1, in [0, 1], is above the rate."""
        if self._start_pass_rate is not None and pass_at_1 > self._start_pass_rate:
            self._is_open = True

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {"is_open": self._is_open}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved switch."""
        self._is_open = bool(state["is_open"])


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
