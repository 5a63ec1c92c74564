"""Means over seeds with 95% intervals of Student's t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95
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


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean of at least one value with its 95% t interval."""
    half = math.nan
    if len(values) > 1:
        half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return MeanInterval(fmean(values), half, tuple(values))


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
