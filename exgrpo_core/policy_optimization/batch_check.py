"""Conditions of every update, checked each step before the gradient."""

from collections.abc import Sequence
from itertools import accumulate

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch

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
