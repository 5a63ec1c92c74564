"""The difference of two scores on the same questions, with an interval by resampling questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)
"""Percentiles of a 95% interval."""

Rates = Sequence[float]
"""Correctness rates of questions, in an order."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of second minus first, its 95% interval, and the two-sided share of resamples beyond no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(benchmarks: Sequence[tuple[Rates, Rates]]) -> PairedDifference:
    """Compare correctness rates of the same questions on one benchmark, or by the mean over several.

    Questions are drawn with replacement, whole, within their benchmark: the samples of one question are not
    independent. With one question the interval is that point.

    Raises:
        ValueError: A benchmark has no questions, or not as many in both.
    """
    generator = np.random.default_rng(0)
    gaps = [_gaps(first, second) for first, second in benchmarks]
    means = np.mean([_resampled_means(gap, generator) for gap in gaps], axis=0)
    low, high = np.percentile(means, INTERVAL)
    beyond = min(float((means <= 0).mean()), float((means >= 0).mean()))
    difference = float(np.mean([item.mean() for item in gaps]))
    return PairedDifference(difference, float(low), float(high), min(1.0, 2 * beyond))


def _gaps(first: Rates, second: Rates) -> NDArray[np.float64]:
    if len(first) != len(second) or not first:
        raise ValueError(f"questions: expected the same ones twice, got {len(first)} and {len(second)}.")
    return np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)


def _resampled_means(gaps: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of resamples, drawn as counts of each distinct value, which has the same distribution."""
    values, counts = np.unique(gaps, return_counts=True)
    means: NDArray[np.float64] = (
        generator.multinomial(gaps.size, counts / gaps.size, NUM_RESAMPLES) @ values / gaps.size
    )
    return means
