"""How hard a question is for the policy now: the bucket 0..K that it belongs to."""

import numpy as np

from exgrpo_core.types import Float64Array, Int64Array


def correctness_rates(rollouts_per_question: int) -> Float64Array:
    """Return k/K of the buckets k = 0..K, shape (K+1,)."""
    return np.arange(rollouts_per_question + 1, dtype=np.float64) / rollouts_per_question


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
