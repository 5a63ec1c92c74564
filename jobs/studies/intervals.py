"""Means over seeds with 95% intervals of Student's t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95
DASH = "-"
"""What a table holds where there is no number."""
_LARGEST_QUANTILE = 1e3
_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean over seeds and half of its 95% interval, NaN for a single seed."""

    mean: float
    half: float
    values: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the mean is 0, by Student's t; NaN for a single seed."""
        if not self.half:
            return 1.0 if self.mean == 0.0 else 0.0
        degrees = len(self.values) - 1
        return (
            1.0 - _inner_probability(abs(self.mean) / self.half * t_quantile(degrees), degrees) if degrees else math.nan
        )


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean of at least one value with its 95% t interval."""
    half = math.nan
    if len(values) > 1:
        half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return MeanInterval(fmean(values), half, tuple(values))


def interval_text(interval: MeanInterval | None, is_difference: bool = False) -> str:
    """Return mean and half interval, the latter left out for a single seed."""
    if interval is None:
        return DASH
    sign = "+" if is_difference and interval.mean > 0 else ""
    decimals = 1 if max(abs(interval.mean), 0.0 if math.isnan(interval.half) else interval.half) >= 10 else 2
    if abs(interval.mean) < 1 and not is_difference:
        decimals = 3
    end = "" if math.isnan(interval.half) else f" ± {interval.half:.{decimals}f}"
    return f"{sign}{interval.mean:.{decimals}f}{end}"


def number_text(value: float | None) -> str:
    """Return a number with as many decimals as its size calls for, a dash for none."""
    if value is None or math.isnan(value):
        return DASH
    if value.is_integer() and abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


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
