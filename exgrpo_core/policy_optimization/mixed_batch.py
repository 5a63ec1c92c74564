"""Advantages of groups, and their rows in mini-batches with the share rho of whole experiential groups (Eq. ExGRPO)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from exgrpo_core.config import CorrectnessRange, ExGRPOConfig
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.policy_optimization.importance import replay_log_ratios, sampler_weights
from exgrpo_core.types import (
    UNASSIGNED,
    Baseline,
    Float32Array,
    GroupPlan,
    Int32Array,
    Replay,
    RolloutGroup,
    SeenMiniBatch,
    Trajectory,
)

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
    sizes = {group.num_trajectories for group in groups}
    if len(sizes) > 1 or any(group.baseline is not Baseline.TOGETHER for group in groups):
        for group in groups:
            group.advantages = _advantages_by_part(group, config)
        return
    all_rewards = np.stack([group.rewards for group in groups])
    all_advantages = group_advantages(all_rewards, config.normalize_by_std)
    for group, rewards, advantages in zip(groups, all_rewards, all_advantages, strict=True):
        is_masked = config.mask_range is not None and not is_in_range(float((rewards >= 1.0).mean()), config.mask_range)
        group.advantages = np.zeros_like(advantages) if is_masked else advantages


def _advantages_by_part(group: RolloutGroup, config: ExGRPOConfig) -> Float32Array:
    """Fresh rollouts and replayed trajectories, each against their own mean; a part of one has advantage 0.

    Raises:
        ValueError: A replayed trajectory has no advantage to keep.
    """
    num_fresh, rewards = len(group.trajectories), group.rewards
    if group.baseline is Baseline.TOGETHER:
        return group_advantages(rewards, config.normalize_by_std)
    parts = [
        group_advantages(part, config.normalize_by_std) if part.size > 1 else np.zeros_like(part)
        for part in (rewards[:num_fresh], rewards[num_fresh:])
    ]
    if group.baseline is Baseline.KEPT:
        parts[1] = np.array([replay.advantage for replay in group.replays], dtype=np.float32)
        if not np.isfinite(parts[1]).all():
            raise ValueError(f"group of question {group.question.index}: its plan gives no advantages to keep.")
    return np.concatenate(parts)


class TrainingRow(NamedTuple):
    """One trajectory as the loss sees it; thousands a step, so no frozen dataclass.

    `behavior_log_probs` (T,) are log pi of the policy that generated it: pi_old for a fresh row, pi_past for a replayed
    one (or pi_old where importance correction is off).
    """

    prompt_ids: Int32Array
    token_ids: Int32Array
    behavior_log_probs: Float32Array
    advantage: float
    is_replayed: bool
    weights: Float32Array | None = None
    """Factors (T,) of the advantage at each token, where the sampler or a draw is corrected for; None is 1."""
    trajectory_id: int = UNASSIGNED

    @property
    def token_advantages(self) -> Float32Array:
        """The advantage of each token (T,)."""
        advantages = np.full(self.token_ids.size, self.advantage, dtype=np.float32)
        return advantages if self.weights is None else advantages * self.weights


@dataclass(slots=True)
class MiniBatch:
    """The rows of one optimizer step: whole groups, `num_trajectories` rows in all."""

    rows: list[TrainingRow]
    num_questions_left: int = 0
    """Groups with an advantage other than 0: neither masked nor of equal rewards throughout."""
    seen: SeenMiniBatch | None = None
    """What the update saw of it, from engines that tell."""

    @property
    def num_trajectories(self) -> int:
        """Trajectories over which the loss averages, zero-advantage ones included."""
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Response tokens over which the entropy bonus averages."""
        return sum(row.token_ids.size for row in self.rows)

    def keep_seen(
        self, sums: Mapping[str, float], rows: Sequence[TrainingRow], values: Iterable[Mapping[str, Float32Array]]
    ) -> None:
        """Keep what the update saw: the sums of the loss, and `SEEN_VALUES` of the tokens of rows with a gradient."""
        tokens = {(row.trajectory_id, row.is_replayed): dict[str, Float32Array]() for row in self.rows}
        for row, of_row in zip(rows, values, strict=True):
            tokens[row.trajectory_id, row.is_replayed] |= of_row
        self.seen = SeenMiniBatch(sums, tokens)


def rows_with_gradient(mini_batch: MiniBatch, objective: ObjectiveSettings) -> list[TrainingRow]:
    """Return the rows that have a gradient: all with an entropy bonus or KL penalty, else those with an advantage."""
    if objective.entropy_coefficient > 0.0 or objective.kl_coefficient > 0.0:
        return mini_batch.rows
    return [row for row in mini_batch.rows if row.advantage != 0.0]


def group_rows(group: RolloutGroup, config: ExGRPOConfig) -> list[TrainingRow]:
    """Return the rows of a group, K in the paper's method, the replayed ones last.

    Raises:
        ValueError: The group has no advantages, or not the rollouts of its plan (K without one), or a trajectory's
            arrays differ in length.
    """
    question = group.question
    plan = group.plan
    num_rows = config.rollouts_per_question if plan is None else plan.num_rollouts + len(group.replays)
    if group.advantages is None or not group.num_trajectories == group.advantages.size == num_rows:
        got = f"{group.num_trajectories}, advantages {group.advantages}"
        raise ValueError(
            f"group of question {question.index}: expected {num_rows} trajectories with advantages, got {got}."
        )
    advantages = group.advantages.tolist()
    pairs_of_fresh = zip(group.trajectories, advantages, strict=False)
    rows = [_fresh_row(question.prompt_ids, *pair, plan, config) for pair in pairs_of_fresh]
    pairs = zip(group.replays, advantages[len(rows) :], strict=True)
    rows += [_replayed_row(question.prompt_ids, replay, advantage, config) for replay, advantage in pairs]
    for row in rows:
        if row.behavior_log_probs.shape != row.token_ids.shape:
            raise ValueError(
                f"group of question {question.index}: {row.token_ids.size} tokens but "
                f"{row.behavior_log_probs.size} behavior log-probs."
            )
    return rows


def _fresh_row(
    prompt_ids: Int32Array, item: Trajectory, advantage: float, plan: GroupPlan | None, config: ExGRPOConfig
) -> TrainingRow:
    """Return the row of a fresh trajectory; a prefix that is not to be trained on is the end of its prompt."""
    weights = sampler_weights(item, config)
    row = TrainingRow(prompt_ids, item.token_ids, item.log_probs, advantage, False, weights, item.trajectory_id)
    if not item.num_prefix_tokens or (plan is not None and plan.prefix is not None and plan.prefix.is_trained):
        return row
    end = item.num_prefix_tokens
    return row._replace(
        prompt_ids=np.concatenate((prompt_ids, item.token_ids[:end])),
        token_ids=item.token_ids[end:],
        behavior_log_probs=item.log_probs[end:],
        weights=None if weights is None else weights[end:],
    )


def _replayed_row(prompt_ids: Int32Array, replay: Replay, advantage: float, config: ExGRPOConfig) -> TrainingRow:
    experience = replay.experience
    behavior = experience.behavior_log_probs if config.corrects_importance else replay.old_log_probs
    weights = replay.token_factors
    if replay.weight != 1.0:
        of_draw = np.full(experience.token_ids.size, replay.weight, dtype=np.float32)
        weights = of_draw if weights is None else of_draw * weights
    number = experience.trajectory_id
    return TrainingRow(prompt_ids, experience.token_ids, behavior, advantage, True, weights, number)


def weigh_tokens(groups: Sequence[RolloutGroup], config: ExGRPOConfig, correction: OffPolicyCorrection) -> None:
    """Give replayed trajectories the factors that the correction has for their tokens in this step, if any."""
    replays = [replay for group in groups for replay in group.replays]
    factors = correction.step_factors([replay_log_ratios(replay, config) for replay in replays]) if replays else None
    if factors is not None:
        of_replay = iter(factors)
        for group in groups:
            group.replays = tuple(replace(replay, token_factors=next(of_replay)) for replay in group.replays)


def trained_groups(groups: Sequence[RolloutGroup], batch_size: int) -> list[RolloutGroup]:
    """Return the groups of the update, at most B: of more, those without replays whose rewards vary least are left out.

    Of groups of equal rewards the last ones are left out first.
    """
    num_left_out = len(groups) - batch_size
    if num_left_out <= 0:
        return list(groups)
    fresh = [i for i, group in enumerate(groups) if not group.has_replay]
    spreads = {i: 0.0 if groups[i].has_equal_rewards else float(groups[i].rewards.std()) for i in fresh}
    left_out = sorted(fresh, key=lambda i: (spreads[i], -i))[:num_left_out]
    return [group for i, group in enumerate(groups) if i not in left_out]


def build_mini_batches(
    groups: Sequence[RolloutGroup], config: ExGRPOConfig, rng: np.random.Generator
) -> list[MiniBatch]:
    """Split shuffled groups into mini-batches of `mini_batch_size`, each with an equal share of experiential groups.

    Shares differ by at most one group between mini-batches, and so do their sizes where groups were left out.

    Raises:
        ValueError: A group is malformed, or there are more than `batch_size` groups or fewer than mini-batches.
    """
    num_batches = config.batch_size // config.mini_batch_size
    if not num_batches <= len(groups) <= config.batch_size:
        raise ValueError(f"batch: expected {num_batches} to {config.batch_size} groups, got {len(groups)}.")
    experiential = rng.permutation([i for i, group in enumerate(groups) if group.has_replay]).astype(np.int64)
    fresh = rng.permutation([i for i, group in enumerate(groups) if not group.has_replay]).astype(np.int64)
    batches: list[MiniBatch] = []
    used = 0
    for i in range(num_batches):
        replayed = experiential[i::num_batches]
        num_fresh = len(range(i, len(groups), num_batches)) - replayed.size
        members = np.concatenate([fresh[used : used + num_fresh], replayed])
        used += num_fresh
        parts = [group_rows(groups[j], config) for j in members.tolist()]
        num_left = sum(any(row.advantage for row in part) for part in parts)
        batches.append(MiniBatch(list(chain.from_iterable(parts)), num_left))
    return batches
