"""Lines 5 to 8 of Algorithm 1, and Algorithm 2: buckets, their Gaussian weights, and the questions drawn from them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from exgrpo_core.types import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class BucketDraw:
    """One draw of bucket counts; arrays have one entry a bucket.

    `probabilities` are over non-empty buckets; `overflows` are draws beyond a bucket's size, moved to other buckets.
    """

    counts: Int64Array
    overflows: Int64Array
    probabilities: Float64Array


@dataclass(frozen=True, slots=True)
class Partition:
    """U_k of one step, k = 1..K at positions 0..K-1; bucket 0 is never drawn, so it is not here.

    `probabilities` (K,) are 0 where a bucket is empty and sum to 1 otherwise.
    """

    members: Sequence[Int64Array]
    sizes: Int64Array
    probabilities: Float64Array


def correctness_rates(rollouts_per_question: int) -> Float64Array:
    """Return k/K of the buckets k = 0..K, shape (K+1,)."""
    return np.arange(rollouts_per_question + 1, dtype=np.float64) / rollouts_per_question


def partition(members: Sequence[Int64Array], center: float, spread: float) -> Partition:
    """Return buckets 1..K, given by their members, with Gaussian probabilities over the non-empty ones."""
    sizes = np.array([questions.size for questions in members], dtype=np.int64)
    rates = correctness_rates(sizes.size)[1:]
    probabilities = bucket_probabilities(rates, center, spread) * (sizes > 0)
    total = probabilities.sum()
    return Partition(members, sizes, probabilities / total if total > 0.0 else probabilities)


def bucket_probabilities(correctness_rates: ArrayLike, center: float, spread: float) -> Float64Array:
    """Return p_k proportional to N(k/K; mu, sigma) over the given buckets, summing to 1 (Algorithm 1, line 6).

    Args:
        correctness_rates: k/K of each bucket.
        center: mu, a correctness rate.
        spread: sigma, in units of correctness rate.

    Raises:
        ValueError: No buckets, a rate that is not finite, or a spread that is not above 0.
    """
    rates = np.asarray(correctness_rates, dtype=np.float64)
    if rates.ndim != 1 or rates.size == 0 or not np.all(np.isfinite(rates)):
        raise ValueError("correctness_rates: expected a row of finite rates, one a bucket.")
    if not (np.isfinite(spread) and spread > 0.0):
        raise ValueError(f"spread: expected a number above 0, got {spread!r}.")
    if not np.isfinite(center):
        raise ValueError(f"center: expected a finite correctness rate, got {center!r}.")
    exponents = -0.5 * ((rates - center) / spread) ** 2
    # The largest exponent becomes 0, so that a narrow Gaussian far from every bucket does not vanish as a whole.
    weights: Float64Array = np.exp(exponents - exponents.max())
    weights /= weights.sum()
    return weights


def sample_buckets(
    bucket_sizes: ArrayLike, probabilities: ArrayLike, num_samples: int, rng: np.random.Generator
) -> Int64Array:
    """Return c_k, the number of questions to draw from each bucket (Algorithm 2); see `draw_bucket_counts`."""
    return draw_bucket_counts(bucket_sizes, probabilities, num_samples, rng).counts


def draw_bucket_counts(
    bucket_sizes: ArrayLike, probabilities: ArrayLike, num_samples: int, rng: np.random.Generator
) -> BucketDraw:
    """Draw c ~ Multinomial(n, p) over non-empty buckets, with c_k at most the size of bucket k and sum n.

    Draws beyond a bucket's size are drawn again among the buckets that have questions left, with the same
    probabilities. Where those are all 0 (given so, or by underflow) the number of questions left replaces them.

    Raises:
        ValueError: Names the argument that is wrong: sizes below 0, lengths that differ, probabilities that are
            negative or not finite, or more samples than questions.
    """
    sizes, weights = _checked(bucket_sizes, probabilities, num_samples)
    shares = _normalized(weights, sizes)
    counts = np.zeros_like(sizes)
    overflows = np.zeros_like(sizes)
    num_left = num_samples
    while num_left > 0:
        room = sizes - counts
        drawn = _multinomial(num_left, _normalized(weights, room), rng)
        surplus = np.maximum(drawn - room, 0)
        counts += drawn - surplus
        overflows += surplus
        num_left = int(surplus.sum())
    return BucketDraw(counts, overflows, shares)


def sample_members(members: Sequence[Int64Array], counts: ArrayLike, rng: np.random.Generator) -> list[Int64Array]:
    """Draw `counts[k]` questions of bucket k, uniformly without replacement (Algorithm 2, line 15)."""
    return [
        rng.choice(questions, count, replace=False) if count else np.empty(0, dtype=np.int64)
        for questions, count in zip(members, np.asarray(counts).tolist(), strict=True)
    ]


def _checked(bucket_sizes: ArrayLike, probabilities: ArrayLike, num_samples: int) -> tuple[Int64Array, Float64Array]:
    sizes = np.asarray(bucket_sizes, dtype=np.int64)
    weights = np.asarray(probabilities, dtype=np.float64)
    if sizes.ndim != 1 or np.any(sizes < 0):
        raise ValueError("bucket_sizes: expected a row of numbers of at least 0, one a bucket.")
    if weights.shape != sizes.shape:
        raise ValueError(f"probabilities: expected {sizes.size}, one a bucket, got {weights.size}.")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0.0):
        raise ValueError("probabilities: expected finite numbers of at least 0.")
    if not 0 <= num_samples <= sizes.sum():
        raise ValueError(f"num_samples: expected 0 to {sizes.sum()} questions in all buckets, got {num_samples}.")
    return sizes, weights


def _normalized(weights: Float64Array, room: Int64Array) -> Float64Array:
    """Return the weights over buckets with room, summing to 1; all 0 where no bucket has room."""
    open_weights = np.where(room > 0, weights, 0.0)
    if not open_weights.any():
        open_weights = room.astype(np.float64)
    total = open_weights.sum()
    return open_weights / total if total > 0.0 else open_weights


def _multinomial(num_samples: int, probabilities: Float64Array, rng: np.random.Generator) -> Int64Array:
    """Algorithm 2, lines 1 to 8: one binomial after another; the last bucket with a probability takes the rest."""
    counts = np.zeros(probabilities.size, dtype=np.int64)
    possible = np.flatnonzero(probabilities).tolist()
    num_left, share_left = num_samples, 1.0
    for bucket in possible[:-1]:
        share = float(probabilities[bucket])
        counts[bucket] = rng.binomial(num_left, min(1.0, share / share_left) if share_left > 0.0 else 1.0)
        num_left -= int(counts[bucket])
        share_left -= share
    counts[possible[-1]] = num_left
    return counts
