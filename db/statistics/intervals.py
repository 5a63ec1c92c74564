"""Intervals of one number: of means by Student's t over seeds or the normal approximation, of shares by Wilson."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95
Z_95 = 1.959964
"""Two-sided 95% of the standard normal distribution."""
DASH = "-"
"""What a table holds where there is no number."""
_LEAST_DEVIATION = 1e-12
"""Less is rounding."""
_ROUNDING = 1e-14
"""Relative, of a difference of sums."""
_LARGEST_QUANTILE = 1e3
_TOLERANCE = 1e-10
_MOST_DEGREES = 1000
"""Beyond, the quantile is that of the normal distribution to three digits."""


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean over seeds and half of its 95% interval, NaN of a single seed or of equal ones, which tell no scatter."""

    mean: float
    half: float
    values: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the mean is 0, by Student's t; 1 without an interval."""
        if math.isnan(self.half):
            return 1.0
        degrees = len(self.values) - 1
        return 1.0 - _inner_probability(abs(self.mean) / self.half * t_quantile(degrees), degrees)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate with its 95% interval (Wilson) and its number of items."""

    value: float
    low: float
    high: float
    num_items: int


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean of at least one value with its 95% t interval."""
    half = half_of_mean(stdev(values), len(values)) if len(values) > 1 else math.nan
    return MeanInterval(fmean(values), half, tuple(values))


def half_of_mean(deviation: float, num_values: int) -> float:
    """Return half of the 95% interval of a mean by Student's t, from the sample's deviation.

    NaN of fewer than two values, and of equal ones: how far others would be from them is unknown.
    """
    if num_values < 2 or deviation < _LEAST_DEVIATION:
        return math.nan
    return t_quantile(min(num_values - 1, _MOST_DEGREES)) * deviation / math.sqrt(num_values)


def mean_of_sums(num_values: int, total: float, squares: float) -> tuple[float, float]:
    """Return a mean and half of its 95% interval from sums of values and of their squares; NaN of no values."""
    half = half_of_mean(deviation_of_sums(num_values, total, squares), num_values)
    return total / num_values if num_values else math.nan, half


def half_interval_95(standard_error: float) -> float:
    """Return half of the 95% interval of a mean by the normal approximation, NaN of equal values.

    For the few seeds of a study `mean_interval` uses Student's t instead.
    """
    return Z_95 * standard_error if standard_error > _LEAST_DEVIATION else math.nan


def score_interval(score: float, standard_error: float, num_questions: int) -> tuple[float, float]:
    """Return the 95% interval of a mean of shares over questions: Wilson's, of as many items as its error stands for.

    It is within [0, 1], and far from both ends nearly the normal one. Where questions do not differ, each is an item:
    40 of 40 say 91% to 100%. Of no questions both ends are NaN.
    Source: Korn and Graubard 1998, Survey Methodology 24, on proportions of clusters.
    """
    if not num_questions:
        return math.nan, math.nan
    variance = score * (1.0 - score)
    has_error = standard_error > 0.0 and variance > 0.0
    return _wilson_ends(score, variance / standard_error**2 if has_error else num_questions)


def deviation_of_sums(num_values: int, total: float, squares: float) -> float:
    """Return the sample's standard deviation from sums of values and of their squares; NaN of fewer than two."""
    if num_values < 2:
        return math.nan
    sum_of_squares = squares - total * total / num_values
    return math.sqrt(sum_of_squares / (num_values - 1)) if sum_of_squares > _ROUNDING * squares else 0.0


def standard_error(rates: Sequence[float]) -> float:
    """Return the standard error of the mean of questions' correctness rates; NaN of fewer than two."""
    return stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan


def wilson(count: int, num_items: int) -> Rate:
    """Return a share with Wilson's interval; of no items NaN with [0, 1]."""
    if num_items == 0:
        return Rate(math.nan, 0.0, 1.0, 0)
    share = count / num_items
    return Rate(share, *_wilson_ends(share, num_items), num_items)


def _wilson_ends(share: float, num_items: float) -> tuple[float, float]:
    weight = Z_95**2 / num_items
    center = (share + weight / 2) / (1 + weight)
    reach = Z_95 / (1 + weight) * math.sqrt(share * (1 - share) / num_items + weight / (4 * num_items))
    return max(0.0, center - reach), min(1.0, center + reach)


def interval_text(interval: MeanInterval | None, is_difference: bool = False) -> str:
    """Return mean and half interval, the latter left out of a single seed and of equal values."""
    if interval is None:
        return DASH
    sign = "+" if is_difference and interval.mean > 0 else ""
    decimals = 1 if max(abs(interval.mean), 0.0 if math.isnan(interval.half) else interval.half) >= 10 else 2
    if abs(interval.mean) < 1 and not is_difference:
        decimals = 3
    end = "" if math.isnan(interval.half) else f" ± {interval.half:.{decimals}f}"
    return f"{sign}{interval.mean:z.{decimals}f}{end}"


def number_text(value: float | None) -> str:
    """Return a number with as many decimals as its size calls for, a dash for none."""
    if value is None or math.isnan(value):
        return DASH
    if value.is_integer() and abs(value) >= 1000:
        return f"{value:z,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:z.3f}"


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| <= t) = `confidence` for a whole number of degrees of freedom."""
    low, high = 0.0, _LARGEST_QUANTILE
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inner_probability(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def _inner_probability(t: float, degrees: int) -> float:
    """Return P(|T| <= t). Source: Abramowitz and Stegun, equations 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine = math.cos(angle)
    is_odd = degrees % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for number in range(1 if is_odd else 0, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (number + 1) / (number + 2)
    if is_odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
