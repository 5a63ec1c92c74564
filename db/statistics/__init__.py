"""The statistics of all pages, commands and studies: four intervals, each of 95%.

Scores have a clustered interval over questions, shares Wilson's, means Student's t over seeds or other values, and
differences on the same questions a paired bootstrap. Fewer than two values have no interval: its ends are NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE, Z_95, NUM_DRAWS = 0.95, 1.959964, 2000  # Z of the standard normal distribution, two-sided
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
_LEAST_DEVIATION = 1e-12  # less is rounding


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with Wilson's interval and its number of items."""

    value: float
    low: float
    high: float
    num_items: int


class Difference(NamedTuple):
    """Mean of second minus first with its interval, and the two-sided p-value of no difference."""

    value: float
    low: float
    high: float
    p_value: float


class MeanInterval(NamedTuple):
    """A mean and half of its interval, NaN of a single value or of equal ones, which tell no scatter."""

    mean: float
    half: float
    values: tuple[float, ...]
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """What such a value can be: a percentage is at most 100."""

    def ends(self) -> tuple[float, float]:
        """Both ends, within the bounds."""
        low, high = self.mean - self.half, self.mean + self.half
        least, most = self.bounds
        return (low, high) if math.isnan(self.half) else (max(least, low), min(most, high))

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the mean is 0, by Student's t; 1 without an interval."""
        degrees, is_known = len(self.values) - 1, not math.isnan(self.half)
        return 1.0 - _inner_probability(abs(self.mean) / self.half * t_quantile(degrees), degrees) if is_known else 1.0


def wilson(count: int, num_items: int) -> Rate:
    """Return a share with Wilson's interval; of no items NaN with [0, 1]."""
    if num_items == 0:
        return Rate(math.nan, 0.0, 1.0, 0)
    share, weight = count / num_items, Z_95**2 / num_items
    center = (share + weight / 2) / (1 + weight)
    reach = Z_95 / (1 + weight) * math.sqrt(share * (1 - share) / num_items + weight / (4 * num_items))
    return Rate(share, max(0.0, center - reach), min(1.0, center + reach), num_items)


def standard_error(rates: Sequence[float]) -> float:
    """Return the standard error of the mean of questions' correctness rates; NaN of fewer than two."""
    return stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan


def score_interval(score: float, standard_error: float, num_questions: int) -> tuple[float, float]:
    """Return a normal interval over questions with two all-right and two all-wrong ones (Agresti, Coull).

    NaN of fewer than two questions, and of what is no share.
    """
    if num_questions < 2 or not 0.0 <= score <= 1.0:
        return math.nan, math.nan
    mean = (score * num_questions + 2) / (total := num_questions + 4)
    of_questions = num_questions * ((num_questions - 1) * standard_error * standard_error + (score - mean) ** 2)
    reach = Z_95 * math.sqrt(of_questions + 2 * mean**2 + 2 * (1 - mean) ** 2) / total
    return max(0.0, mean - reach), min(1.0, mean + reach)


def interval_text(ends: tuple[float, float], decimals: int = 1, scale: float = 100.0) -> str:
    """Return the ends of an interval in words, those of shares in percent: `80.6 to 100.0`; "" without one."""
    return "" if math.isnan(ends[0]) else " to ".join(f"{scale * end:z.{decimals}f}" for end in ends)


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean of at least one value with its interval."""
    is_finite = all(map(math.isfinite, values))
    spread = math.nan if not is_finite else stdev(values) if values[1:] else 0.0
    return MeanInterval(fmean(values), half_of_mean(spread, len(values)), tuple(values))


def half_of_mean(deviation: float, num_values: int) -> float:
    """Return half of the interval of a mean from the sample's deviation; NaN where `MeanInterval` has none."""
    is_known = num_values > 1 and deviation >= _LEAST_DEVIATION
    return t_quantile(num_values - 1) * deviation / math.sqrt(num_values) if is_known else math.nan


def mean_of_sums(num_values: int, total: float, squares: float) -> tuple[float, float]:
    """Return a mean and half of its interval from sums of values and of their squares; NaN of no values."""
    half = half_of_mean(deviation_of_sums(num_values, total, squares), num_values)
    return total / num_values if num_values else math.nan, half


def deviation_of_sums(num_values: int, total: float, squares: float) -> float:
    """Return the sample's standard deviation from sums of values and of their squares; NaN of fewer than two."""
    if num_values < 2:
        return math.nan
    of_all = squares - total * total / num_values
    return math.sqrt(of_all / (num_values - 1)) if of_all > 1e-14 * squares else 0.0


def paired_difference(benchmarks: Sequence[tuple[ArrayLike, ArrayLike]], *, is_paired: bool = False) -> Difference:
    """Compare correctness rates of the same questions on one benchmark, or by the mean over several.

    A side is (training seeds, questions), or (questions) of one seed; with `is_paired` row s of both is of one seed. Of
    several seeds one fewer is drawn, whose mean scatters as theirs. Questions that all changed alike have no interval.
    """
    generator, before, after = np.random.default_rng(0), np.zeros((1, 1)), np.zeros((1, 1))
    for pair in benchmarks:
        first, second = (np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in pair)
        rates = np.vstack([first, second]) / len(benchmarks)
        drawn = (generator.integers(0, len(rates.T), len(rates.T)) for _ in range(NUM_DRAWS))
        means = np.array([rates.mean(axis=1), *(rates[:, questions].mean(axis=1) for questions in drawn)])
        before, after = before + means[:, : len(first)], after + means[:, len(first) :]
    seeds = [generator.integers(0, n, (NUM_DRAWS, max(1, n - 1))) for n in (before.shape[1], after.shape[1])]
    sides = (before, seeds[0]), (after, seeds[0 if is_paired else 1])
    changes = np.diff([np.take_along_axis(side[1:], drawn, 1).mean(1) for side, drawn in sides], axis=0)[0]
    value = float(after[0].mean() - before[0].mean())
    if np.ptp(changes) < _LEAST_DEVIATION:
        return Difference(value, math.nan, math.nan, 1.0)
    low, high = np.percentile(changes, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]).tolist()
    rarer = min((changes <= _LEAST_DEVIATION).mean(), (changes >= -_LEAST_DEVIATION).mean())
    return Difference(value, low, high, float(np.clip(2 * rarer, 2 / NUM_DRAWS, 1.0)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values by Holm's correction (1979), in the same order: any below a level is one error in all."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    steps = (min(1.0, (len(order) - rank) * p_values[index]) for rank, index in enumerate(order))
    corrected = dict(zip(order, accumulate(steps, max), strict=True))
    return [corrected[index] for index in range(len(order))]


@cache
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| <= t) = `confidence` for a whole number of degrees of freedom."""
    low, high = 0.0, 1e3
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inner_probability(middle, degrees) < confidence else (low, middle)
    return high


def _inner_probability(t: float, degrees: int) -> float:
    """Return P(|T| <= t), where the angle of tangent T / sqrt(degrees) has a density of cos^(degrees - 1)."""
    degrees = min(degrees, 1000)  # the nodes are too far apart for a narrower density
    ends = math.atan(t / math.sqrt(degrees)), math.pi / 2
    area, whole = (end * _WEIGHTS @ np.cos(end / 2 * (_NODES + 1)) ** (degrees - 1) for end in ends)
    return float(area / whole)
