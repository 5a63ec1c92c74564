"""The difference of two scores on the same questions, with an interval by resampling questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)
"""Percentiles of a 95% interval."""
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of second minus first, its 95% interval, and the two-sided share of resamples beyond no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(first: Sequence[float], second: Sequence[float], seed: int = 0) -> PairedDifference:
    """Compare correctness rates of the same questions; with one question the interval is that point.

    Questions are drawn with replacement, whole: the samples of one question are not independent.

    Raises:
        ValueError: There are no questions, or not as many in both.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"questions: expected the same ones twice, got {len(first)} and {len(second)}.")
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    generator = np.random.default_rng(seed)
    size = differences.size
    means = np.concatenate(
        [differences[generator.integers(0, size, (_CHUNK, size))].mean(axis=1) for _ in range(NUM_RESAMPLES // _CHUNK)]
    )
    low, high = np.percentile(means, INTERVAL)
    beyond = min(float((means <= 0).mean()), float((means >= 0).mean()))
    return PairedDifference(float(differences.mean()), float(low), float(high), min(1.0, 2 * beyond))
