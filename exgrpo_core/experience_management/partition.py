"""Experience partition: buckets with Gaussian probabilities (Algorithm 1, lines 5 and 6)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities
from exgrpo_core.experience_management.difficulty import correctness_rates
from exgrpo_core.types import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Partition:
    """U_k of one step, k = 1..K at positions 0..K-1; bucket 0 is never drawn, so it is not here.

    `probabilities` (K,) are 0 where a bucket is empty and sum to 1 otherwise.
    """

    members: Sequence[Int64Array]
    sizes: Int64Array
    probabilities: Float64Array


def partition(members: Sequence[Int64Array], center: float, spread: float) -> Partition:
    """Return buckets 1..K, given by their members, with Gaussian probabilities over the non-empty ones."""
    sizes = np.array([questions.size for questions in members], dtype=np.int64)
    rates = correctness_rates(sizes.size)[1:]
    probabilities = bucket_probabilities(rates, center, spread) * (sizes > 0)
    total = probabilities.sum()
    return Partition(members, sizes, probabilities / total if total > 0.0 else probabilities)
