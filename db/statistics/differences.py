"""Whether things differ: scores on the same questions, several p-values at once, ranks (AUC).

Scores have one definition on all pages: the mean over questions of the second's correctness rate minus the first's,
with Tango's interval. Seeds are few, so their part is Student's t times their scatter beyond that of questions and
samples, of each side; independent parts are added as squares of how far they reach. Of simulated differences this
covers 94% to 97.5% (1 to 5 seeds, 30 and 100 questions), of seeds that do not differ up to 99%.
Where both sides have the same seeds, the scatter is that of pairs, in which what a seed adds to both cancels. Samples
scatter in the pairs' means too and are taken off the questions, which have more degrees of freedom.
Sources: Tango 1998, Statistics in Medicine 17 (paired proportions); Zou and Donner 2008, ibid. 27 (squares of reaches).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from db.statistics.intervals import CONFIDENCE, Z_95, Rate, t_quantile

_NUM_HALVINGS = 32
_LEAST_SCATTER = 1e-12
"""Less is rounding: the values are equal."""

Rates = NDArray[np.float64]
"""Correctness rates of one side: (training seeds, questions), both in an order."""


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """Mean of second minus first, and how far its interval reaches below and above it, by confidence."""

    difference: float
    reaches: Callable[[float], Sequence[float]]

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95% interval."""
        below, above = self.reaches(CONFIDENCE)
        return self.difference - below, self.difference + above

    @property
    def p_value(self) -> float:
        """One minus the confidence at which the interval ends at 0."""
        side, size = 0 if self.difference > 0 else 1, abs(self.difference)
        return 1.0 - _last_inside(0.0, 1.0, lambda confidence: self.reaches(confidence)[side] < size)


def score_difference(benchmarks: Sequence[tuple[ArrayLike, ArrayLike]], *, is_paired: bool = False) -> ScoreDifference:
    """Compare correctness rates of the same questions on one benchmark, or by the mean over several.

    Each side is (training seeds, questions), with the same seeds on every benchmark, or (questions) of one seed. With
    `is_paired` row s of both sides is of the same seed, of at least two. The interval does not cover other seeds of a
    side that has one.

    Raises:
        ValueError: A benchmark has no questions, or not as many in both.
    """
    sides = [[np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in pair] for pair in benchmarks]
    gaps = [_gaps(first, second) for first, second in sides]
    pairs = [second - first for first, second in sides] if is_paired else []
    shares = [_share_of_questions(rates) for rates in pairs] or [1.0] * len(gaps)
    if is_paired:
        errors = [(len(pairs[0]), float(np.sqrt(_seed_means(pairs).var(ddof=1) / len(pairs[0]))))]
    else:
        errors = [(len(side[0]), _seed_error(side)) for side in zip(*sides, strict=True) if len(side[0]) > 1]

    def reaches(confidence: float) -> list[float]:
        of_seeds = math.hypot(*(t_quantile(num_seeds - 1, confidence) * error for num_seeds, error in errors))
        sides = zip(*(gain_reach(item, confidence) for item in gaps), strict=True)
        return [_joined(np.array(of_questions), np.array(shares), of_seeds) for of_questions in sides]

    return ScoreDifference(float(np.mean([item.mean() for item in gaps])), reaches)


def _joined(of_questions: NDArray[np.float64], shares: NDArray[np.float64], of_seeds: float) -> float:
    """Return how far the mean over benchmarks reaches; samples scatter in questions too, so never less than they do."""
    ends = np.array([of_questions, of_questions * shares]) / of_questions.size
    without, beside = np.hypot(np.linalg.norm(ends, axis=1), [0.0, of_seeds])
    return float(max(without, beside))


def gain_reach(gaps: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return how far below and above the mean of questions' changes in [-1, 1] its interval reaches.

    It is Tango's score interval of so many pairs as the scatter of the changes stands for. Where they do not scatter,
    each question is a pair: of 5 that all keep their answers it is -.43 to .43. Of no questions both ends are NaN.
    """
    values = np.asarray(gaps, dtype=np.float64)
    if not values.size:
        return math.nan, math.nan
    mean, size = float(values.mean()), float(np.abs(values).mean())
    scatter, spread = float(values.var(ddof=1)) if values.size > 1 else 0.0, size - mean * mean
    num_pairs = values.size * (spread / scatter if min(scatter, spread) > _LEAST_SCATTER else 1.0)
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)

    def variance(change: float) -> float:
        # The likeliest share of losses q where wins are q + change: the larger root of Tango's equation.
        slope = (2.0 - mean) * change - size
        losses = (math.sqrt(max(0.0, slope**2 + 4.0 * (size - mean) * change * (1.0 - change))) - slope) / 4.0
        return max(0.0, 2.0 * losses + change - change * change)

    def end_of(far: float) -> float:
        return _last_inside(mean, far, lambda change: (mean - change) ** 2 * num_pairs <= z * z * variance(change))

    return mean - end_of(-1.0), end_of(1.0) - mean


def independent_difference(first: Rate, second: Rate) -> tuple[float, float]:
    """Return the 95% interval of the second rate minus the first, of different items, within [-1, 1].

    Source: Newcombe 1998, Statistics in Medicine 17 (independent proportions), method 10.
    """
    change = second.value - first.value
    below = math.hypot(second.value - second.low, first.high - first.value)
    above = math.hypot(second.high - second.value, first.value - first.low)
    return change - below, change + above


def _last_inside(near: float, far: float, is_inside: Callable[[float], bool]) -> float:
    """Return the value nearest to `far` that is inside, of which `near` is one."""
    for _ in range(_NUM_HALVINGS):
        middle = (near + far) / 2
        near, far = (middle, far) if is_inside(middle) else (near, middle)
    return near


def _gaps(first: Rates, second: Rates) -> NDArray[np.float64]:
    if first.shape[1] != second.shape[1] or not first.size:
        raise ValueError(f"questions: expected the same ones twice, got {first.shape[1]} and {second.shape[1]}.")
    gaps: NDArray[np.float64] = second.mean(axis=0) - first.mean(axis=0)
    return gaps


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


def _share_of_questions(pairs: Rates) -> float:
    """Return the share of the scatter of questions' means over seeds that is the questions' own, as deviations."""
    variance = float(pairs.mean(axis=0).var(ddof=1)) if pairs.shape[1] > 1 else 0.0
    of_questions = max(0.0, variance - _residual_variance(pairs) / len(pairs))
    return math.sqrt(of_questions / variance) if variance else 1.0


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

    def is_inside(other: float) -> bool:
        spread = 1 + others * ((1 - other) / (2 - other) + other / (1 + other))
        return (area - other) ** 2 <= Z_95**2 * other * (1 - other) * spread / pairs

    return _last_inside(area, 0.0, is_inside), _last_inside(area, 1.0, is_inside)
