"""Group-relative advantages (Eq. GRPO advantage) and masked GRPO's indicator."""

from collections.abc import Sequence

import numpy as np

from exgrpo_core.config import CorrectnessRange, ExGRPOConfig
from exgrpo_core.types import Float32Array, RolloutGroup

STD_EPSILON = 1e-6
"""Added to the standard deviation, as GRPO implementations do."""


def group_advantages(rewards: Float32Array, normalize_by_std: bool = False) -> Float32Array:
    """Return rewards (..., K) minus their group mean; divided by the group's standard deviation if asked.

    Without the division it is Dr.GRPO's advantage; the division uses the sample standard deviation (K - 1), as
    GRPO implementations do, plus `STD_EPSILON`.

    Raises:
        ValueError: Fewer than two rewards a group, or one that is not finite.
    """
    # In double precision: close scores far from 0 would leave a sum that is not 0.
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim == 0 or rewards.shape[-1] < 2:
        raise ValueError(f"rewards: expected at least 2 a group, got shape {rewards.shape}.")
    if not np.isfinite(rewards).all():
        raise ValueError("rewards: expected finite numbers, got NaN or infinity.")
    advantages = rewards - rewards.mean(axis=-1, keepdims=True)
    if normalize_by_std:
        advantages /= rewards.std(axis=-1, ddof=1, keepdims=True) + STD_EPSILON
    rounded: Float32Array = advantages.astype(np.float32)
    return rounded


def is_in_range(correctness_rate: float, mask_range: CorrectnessRange) -> bool:
    """Return masked GRPO's indicator (Eq. MaskGRPO) for one question."""
    above = correctness_rate >= mask_range.low if mask_range.includes_low else correctness_rate > mask_range.low
    below = correctness_rate <= mask_range.high if mask_range.includes_high else correctness_rate < mask_range.high
    return above and below


def assign_advantages(groups: Sequence[RolloutGroup], config: ExGRPOConfig) -> None:
    """Give every group its advantages, (K,) in the paper's method; zero where masked GRPO leaves the group out."""
    if any(group.has_two_baselines for group in groups):
        for group in groups:
            group.advantages = _advantages_by_part(group, config)
        return
    all_rewards = np.stack([group.rewards for group in groups])
    all_advantages = group_advantages(all_rewards, config.normalize_by_std)
    for group, rewards, advantages in zip(groups, all_rewards, all_advantages, strict=True):
        is_masked = config.mask_range is not None and not is_in_range(float((rewards >= 1.0).mean()), config.mask_range)
        group.advantages = np.zeros_like(advantages) if is_masked else advantages


def _advantages_by_part(group: RolloutGroup, config: ExGRPOConfig) -> Float32Array:
    """Fresh rollouts and replayed trajectories, each against their own mean; a part of one has advantage 0."""
    num_fresh, rewards = len(group.trajectories), group.rewards
    if not group.has_two_baselines:
        return group_advantages(rewards, config.normalize_by_std)
    parts = [part for part in (rewards[:num_fresh], rewards[num_fresh:]) if part.size]
    return np.concatenate(
        [group_advantages(part, config.normalize_by_std) if part.size > 1 else np.zeros_like(part) for part in parts]
    )
