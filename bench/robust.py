"""Statistics that a few runs carry: the interquartile mean and the probability of improvement, over strata.

Source: Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice" (arXiv 2108.13264, section 4): runs are
drawn with replacement within each stratum, and a 95% interval is the percentiles of what the draws give.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]
NUM_DRAWS = 2000
INTERVAL = (2.5, 97.5)


def interquartile_mean(values: Values) -> float:
    """Return the mean of what is left without the lowest and the highest quarter."""
    return float(stats.trim_mean(values, 0.25))


def probability_of_improvement(first: Sequence[Values], second: Sequence[Values]) -> float:
    """Return how often a run of `second` scores above one of `first`, ties counted half: the mean over strata."""
    shares = [
        stats.mannwhitneyu(above, below).statistic / (above.size * below.size)
        for below, above in zip(first, second, strict=True)
    ]
    return float(np.mean(shares))


def stratified_interval(strata: Sequence[Values], statistic: Callable[[list[Values]], float]) -> tuple[float, float]:
    """Return the 95% interval of a statistic of strata, each (runs,)."""
    generator = np.random.default_rng(0)
    drawn = [
        statistic([part[generator.integers(len(part), size=len(part))] for part in strata]) for _ in range(NUM_DRAWS)
    ]
    low, high = np.percentile(drawn, INTERVAL)
    return float(low), float(high)
