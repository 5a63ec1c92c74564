"""Mixed groups to mini-batches with the share rho of whole experiential groups (Eq. ExGRPO), and their check."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.methods.run_strategies import ObjectiveSettings
from exgrpo_core.policy_optimization.importance import sampler_weights
from exgrpo_core.types import Float32Array, Int32Array, Replay, RolloutGroup


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

    @property
    def token_advantages(self) -> Float32Array:
        """The advantage of each token (T,)."""
        advantages = np.full(self.token_ids.size, self.advantage, dtype=np.float32)
        return advantages if self.weights is None else advantages * self.weights


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The rows of one optimizer step: whole groups, `num_trajectories` rows in all."""

    rows: list[TrainingRow]
    num_experiential_groups: int
    num_questions_left: int = 0
    """Groups with an advantage other than 0: neither masked nor of equal rewards throughout."""
    group_sizes: tuple[int, ...] = ()
    """Rows of each group; none says that all have K."""

    @property
    def num_trajectories(self) -> int:
        """Trajectories over which the loss averages, zero-advantage ones included."""
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Response tokens over which the entropy bonus averages."""
        return sum(row.token_ids.size for row in self.rows)


def rows_with_gradient(mini_batch: MiniBatch, objective: ObjectiveSettings) -> list[TrainingRow]:
    """Return the rows that have a gradient: all with an entropy bonus or KL penalty, else those with an advantage."""
    if objective.entropy_coefficient > 0.0 or objective.kl_coefficient > 0.0:
        return mini_batch.rows
    return [row for row in mini_batch.rows if row.advantage != 0.0]


def group_rows(group: RolloutGroup, config: ExGRPOConfig) -> list[TrainingRow]:
    """Return the rows of a group, K in the paper's method, the replayed ones last.

    Raises:
        ValueError: The group has no advantages, or not K rows, or a trajectory's arrays differ in length.
    """
    question = group.question
    # Replays with a baseline of their own come on top of K rollouts.
    num_rows = config.rollouts_per_question + (len(group.replays) if group.has_two_baselines else 0)
    if group.advantages is None or group.advantages.shape != (num_rows,):
        got = None if group.advantages is None else group.advantages.shape
        raise ValueError(f"group of question {question.index}: expected {num_rows} advantages, got {got}.")
    advantages = group.advantages.tolist()
    rows = [
        TrainingRow(
            question.prompt_ids,
            trajectory.token_ids,
            trajectory.log_probs,
            advantage,
            False,
            sampler_weights(trajectory, config),
        )
        for trajectory, advantage in zip(group.trajectories, advantages, strict=False)
    ]
    pairs = zip(group.replays, advantages[len(rows) :], strict=False)
    rows += [_replayed_row(question.prompt_ids, replay, advantage, config) for replay, advantage in pairs]
    if len(rows) != num_rows:
        raise ValueError(f"group of question {question.index}: expected {num_rows} rows, got {len(rows)}.")
    for row in rows:
        if row.behavior_log_probs.shape != row.token_ids.shape:
            raise ValueError(
                f"group of question {question.index}: {row.token_ids.size} tokens but "
                f"{row.behavior_log_probs.size} behavior log-probs."
            )
    return rows


def _replayed_row(prompt_ids: Int32Array, replay: Replay, advantage: float, config: ExGRPOConfig) -> TrainingRow:
    experience = replay.experience
    behavior = experience.behavior_log_probs if config.corrects_importance else replay.old_log_probs
    weights = None if replay.weight == 1.0 else np.full(experience.token_ids.size, replay.weight, dtype=np.float32)
    return TrainingRow(prompt_ids, experience.token_ids, behavior, advantage, True, weights)


def trained_groups(groups: Sequence[RolloutGroup], batch_size: int) -> list[RolloutGroup]:
    """Return the groups of the update, at most B: of more, those of equal rewards are left out, the last ones first."""
    num_left_out = len(groups) - batch_size
    if num_left_out <= 0:
        return list(groups)
    equal = [i for i, group in enumerate(groups) if not group.has_replay and group.has_equal_rewards]
    left_out = set(equal[len(equal) - num_left_out :])
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
        by_group = [group_rows(groups[j], config) for j in members]
        rows = [row for part in by_group for row in part]
        sizes = tuple(map(len, by_group))
        num_left = sum(bool(np.any(groups[j].advantages)) for j in members)
        batches.append(MiniBatch(rows, int(replayed.size), num_left, sizes))
    return batches


ADVANTAGE_TOLERANCE = 1e-4
"""Largest sum of a group's advantages, as a share of the sum of their sizes, that rounding may leave."""


def check_mini_batches(
    mini_batches: Sequence[MiniBatch], config: ExGRPOConfig, replays_whole_groups: bool = False
) -> None:
    """Check that mini-batches have whole groups, their share of replayed rows, and advantages that sum to 0.

    Raises:
        ValueError: One has not; the message has the numbers.
    """
    shares = [mini_batch.num_experiential_groups for mini_batch in mini_batches]
    if max(shares) - min(shares) > 1:
        raise ValueError(f"mini-batches: expected equal shares of experiential groups, got {shares}.")
    numbers = [len(mini_batch.group_sizes) or len(mini_batch.rows) for mini_batch in mini_batches]
    is_in_groups = all(mini_batch.group_sizes for mini_batch in mini_batches)
    if max(numbers) - min(numbers) > (1 if is_in_groups else config.rollouts_per_question):
        unit = "groups" if is_in_groups else "rows"
        raise ValueError(f"mini-batches: expected sizes that differ by one group at most, got {numbers} {unit}.")
    for number, mini_batch in enumerate(mini_batches):
        what = f"mini-batch {number + 1} of {len(mini_batches)}"
        _check_mini_batch(what, mini_batch, config, None if replays_whole_groups else config.replays_per_group)


def _check_mini_batch(what: str, mini_batch: MiniBatch, config: ExGRPOConfig, most_replayed: int | None) -> None:
    size, num_rows = config.rollouts_per_question, len(mini_batch.rows)
    sizes = mini_batch.group_sizes or (size,) * (num_rows // size)
    if sum(sizes) != num_rows or not 1 <= len(sizes) <= config.mini_batch_size:
        raise ValueError(f"{what}: expected up to {config.mini_batch_size} groups of {size} rows, got {num_rows} rows.")
    ends = accumulate(sizes)
    groups = [mini_batch.rows[end - count : end] for end, count in zip(ends, sizes, strict=True)]
    num_replayed = [sum(row.is_replayed for row in group) for group in groups]
    most = max(sizes) if most_replayed is None else most_replayed
    if max(num_replayed) > most or sum(map(bool, num_replayed)) != mini_batch.num_experiential_groups:
        wanted = "one replayed row" if most == 1 else f"1 to {most} replayed rows"
        raise ValueError(
            f"{what}: expected {wanted} in each of {mini_batch.num_experiential_groups} groups and none in the "
            f"others, got {num_replayed} a group."
        )
    for position, group in enumerate(groups):
        if any(row.prompt_ids is not group[0].prompt_ids for row in group):
            raise ValueError(f"{what}, group {position + 1}: expected {len(group)} rows of one question.")
        total, size_of_all = sum(row.advantage for row in group), sum(abs(row.advantage) for row in group)
        if abs(total) > ADVANTAGE_TOLERANCE * max(size_of_all, 1e-6):
            raise ValueError(f"{what}, group {position + 1}: expected advantages that sum to 0, got {total}.")
