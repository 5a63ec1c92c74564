"""Conditions of every update, checked each step before the gradient."""

from collections.abc import Sequence

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch

ADVANTAGE_TOLERANCE = 1e-4
"""Largest sum of a group's advantages, as a share of the sum of their sizes, that rounding may leave."""


def check_mini_batches(mini_batches: Sequence[MiniBatch], config: ExGRPOConfig) -> None:
    """Check that mini-batches have whole groups of K rows, their share of replayed rows, and advantages that sum to 0.

    Raises:
        ValueError: One has not; the message has the numbers.
    """
    shares = [mini_batch.num_experiential_groups for mini_batch in mini_batches]
    if max(shares) - min(shares) > 1:
        raise ValueError(f"mini-batches: expected equal shares of experiential groups, got {shares}.")
    sizes = [len(mini_batch.rows) for mini_batch in mini_batches]
    if max(sizes) - min(sizes) > config.rollouts_per_question:
        raise ValueError(f"mini-batches: expected sizes that differ by one group at most, got {sizes} rows.")
    for number, mini_batch in enumerate(mini_batches):
        _check_mini_batch(f"mini-batch {number + 1} of {len(mini_batches)}", mini_batch, config)


def _check_mini_batch(what: str, mini_batch: MiniBatch, config: ExGRPOConfig) -> None:
    size, num_rows = config.rollouts_per_question, len(mini_batch.rows)
    if num_rows % size or not 1 <= num_rows // size <= config.mini_batch_size:
        raise ValueError(f"{what}: expected up to {config.mini_batch_size} groups of {size} rows, got {num_rows} rows.")
    groups = [mini_batch.rows[start : start + size] for start in range(0, num_rows, size)]
    num_replayed = [sum(row.is_replayed for row in group) for group in groups]
    if max(num_replayed) > 1 or sum(num_replayed) != mini_batch.num_experiential_groups:
        raise ValueError(
            f"{what}: expected one replayed row in each of {mini_batch.num_experiential_groups} groups and none in the "
            f"others, got {num_replayed} a group."
        )
    for position, group in enumerate(groups):
        if any(row.prompt_ids is not group[0].prompt_ids for row in group):
            raise ValueError(f"{what}, group {position + 1}: expected {size} rows of one question.")
        total, size_of_all = sum(row.advantage for row in group), sum(abs(row.advantage) for row in group)
        if abs(total) > ADVANTAGE_TOLERANCE * max(size_of_all, 1e-6):
            raise ValueError(f"{what}, group {position + 1}: expected advantages that sum to 0, got {total}.")
