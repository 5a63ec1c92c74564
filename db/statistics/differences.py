"""Whether things differ: scores on the same questions, several p-values at once, ranks (AUC), counts (binomial).

For scores, questions are drawn with replacement, whole: the scatter of their rates holds that of their samples. Seeds
are too few to be drawn, so their part is Student's t times their scatter beyond that of questions and samples, of each
side. Of simulated differences this covers 93% to 98.5% (2 to 8 seeds, 30 to 200 questions); drawing seeds with
replacement too covers 72% to 99.7% of the same.
Where both sides have the same seeds, the scatter is that of pairs, in which what a seed adds to both cancels. Samples
scatter in the pairs' means too and are taken off the questions, which have more degrees of freedom: this covers 94% to
96% (2 to 8 pairs); taking them off the pairs covers 88% to 96%.
Sources: Owen and Eckles, "Bootstrapping data arrays of arbitrary order", 2012; Behrens and Fisher on two variances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from db.statistics.intervals import Z_95

NUM_RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)
"""Percentiles of a 95% interval."""

Rates = NDArray[np.float64]
"""Correctness rates of one side: (training seeds, questions), both in an order."""


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """Mean of second minus first, its 95% interval, and the two-sided share of resamples beyond no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def hierarchical_bootstrap(
    benchmarks: Sequence[tuple[ArrayLike, ArrayLike]], num_resamples: int = NUM_RESAMPLES, *, is_paired: bool = False
) -> ScoreDifference:
    """Compare correctness rates of the same questions on one benchmark, or by the mean over several.

    Each side is (training seeds, questions), with the same seeds on every benchmark, or (questions) of one seed. With
    `is_paired` row s of both sides is of the same seed, of at least two. The interval does not cover other seeds of a
    side that has one; with one seed a side and one question it is that point.

    Raises:
        ValueError: A benchmark has no questions, or not as many in both.
    """
    generator = np.random.default_rng(0)
    sides = [[np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in pair] for pair in benchmarks]
    gaps = [_gaps(first, second) for first, second in sides]
    if is_paired:
        pairs = [second - first for first, second in sides]
        gaps = [_without_residuals(rates) for rates in pairs]
        errors = [(len(pairs[0]), float(np.sqrt(_seed_means(pairs).var(ddof=1) / len(pairs[0]))))]
    else:
        errors = [(len(side[0]), _seed_error(side)) for side in zip(*sides, strict=True) if len(side[0]) > 1]
    means = np.mean([_resampled_means(gap, generator, num_resamples) for gap in gaps], axis=0)
    for num_seeds, error in errors:
        means += error * generator.standard_t(num_seeds - 1, num_resamples)
    low, high = np.percentile(means, INTERVAL)
    beyond = min(float((means <= 0).mean()), float((means >= 0).mean()))
    difference = float(np.mean([item.mean() for item in gaps]))
    return ScoreDifference(difference, float(low), float(high), min(1.0, 2 * beyond))


def _gaps(first: Rates, second: Rates) -> NDArray[np.float64]:
    if first.shape[1] != second.shape[1] or not first.size:
        raise ValueError(f"questions: expected the same ones twice, got {first.shape[1]} and {second.shape[1]}.")
    gaps: NDArray[np.float64] = second.mean(axis=0) - first.mean(axis=0)
    return gaps


def _resampled_means(
    gaps: NDArray[np.float64], generator: np.random.Generator, num_resamples: int
) -> NDArray[np.float64]:
    """Return the means of resamples, drawn as counts of each distinct value, which has the same distribution."""
    values, counts = np.unique(gaps, return_counts=True)
    means: NDArray[np.float64] = (
        generator.multinomial(gaps.size, counts / gaps.size, num_resamples) @ values / gaps.size
    )
    return means


def _seed_error(benchmarks: Sequence[Rates]) -> float:
    """Return the standard error of one side's mean over benchmarks by its seeds alone, without questions and samples.

    The scatter of seeds' means holds that of residuals of a sum of seed and question, which is taken off.
    """
    means = _seed_means(benchmarks)
    of_residuals = math.fsum(_residual_variance(rates) / rates.shape[1] for rates in benchmarks) / len(benchmarks) ** 2
    return float(np.sqrt(max(0.0, float(means.var(ddof=1)) - of_residuals) / len(means)))


def _seed_means(benchmarks: Sequence[Rates]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = np.mean([rates.mean(axis=1) for rates in benchmarks], axis=0)
    return means


def _without_residuals(pairs: Rates) -> NDArray[np.float64]:
    """Return the mean of each question over seeds, closer to their mean, so that they scatter by questions alone."""
    gaps = pairs.mean(axis=0)
    deviations = gaps - gaps.mean()
    variance = float((deviations**2).sum()) / max(1, gaps.size - 1)
    of_questions = max(0.0, variance - _residual_variance(pairs) / len(pairs))
    shrunk: NDArray[np.float64] = gaps.mean() + deviations * np.sqrt(of_questions / variance if variance else 0.0)
    return shrunk


def _residual_variance(rates: Rates) -> float:
    """Return the variance of residuals of a sum of seed and question, of samples and of both together."""
    num_seeds, num_questions = rates.shape
    residuals = rates - rates.mean(axis=1, keepdims=True) - rates.mean(axis=0) + rates.mean()
    freedom = (num_seeds - 1) * max(1, num_questions - 1)
    return float((residuals**2).sum() / freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values by Holm's correction, in the same order: any below a level is one error at that level in all.

    Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def area_under_curve(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Return the chance that a positive's score is above a negative's, ties counted half; NaN without both."""
    if not len(positives) or not len(negatives):
        return float("nan")
    below = np.sort(np.asarray(negatives, dtype=np.float64))
    scores = np.asarray(positives, dtype=np.float64)
    num_less = np.searchsorted(below, scores, side="left")
    num_less_or_equal = np.searchsorted(below, scores, side="right")
    return float((num_less + num_less_or_equal).mean() / (2 * below.size))


def area_interval(area: float, num_positives: int, num_negatives: int) -> tuple[float, float]:
    """Return the 95% interval of an area under the curve, right at 0 and 1 too.

    Source: Newcombe 2006, Statistics in Medicine 25, method 5, which solves Hanley and McNeil's variance for the area.
    """
    pairs, others = num_positives * num_negatives, (num_positives + num_negatives) / 2 - 1

    def end_of(far: float) -> float:
        near = area
        for _ in range(50):
            middle = (near + far) / 2
            spread = 1 + others * ((1 - middle) / (2 - middle) + middle / (1 + middle))
            is_inside = (area - middle) ** 2 <= Z_95**2 * middle * (1 - middle) * spread / pairs
            near, far = (middle, far) if is_inside else (near, middle)
        return near

    return end_of(0.0), end_of(1.0)


def binomial_tail(num_hits: int, num_tries: int, chance: float) -> float:
    """Return the probability of at least `num_hits` in `num_tries` independent tries; 1 without tries."""
    # By logarithms, since the coefficients of a thousand tries are larger than any float.
    log_hit, log_miss, log_orders = math.log(chance), math.log1p(-chance), math.lgamma(num_tries + 1)
    logs = (
        log_orders - math.lgamma(hits + 1) - math.lgamma(num_tries - hits + 1)
        + hits * log_hit + (num_tries - hits) * log_miss
        for hits in range(num_hits, num_tries + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))
