"""Curves as numbers: a metric against steps or what else was done, smoothed, and cut to the part that is looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from db.rows.runs import MetricPoint
from exgrpo_core.types import Float32Array

MAX_SMOOTHING = 0.99


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: `low` and `high` are the least and largest of its runs where it is the mean of several."""

    x: Float32Array
    y: Float32Array
    low: Float32Array | None = None
    high: Float32Array | None = None


def aligned(points: Sequence[MetricPoint], axis: Sequence[MetricPoint] | None) -> Line:
    """Return a metric against steps, or against the value of `axis` at each step; nothing where `axis` is empty."""
    if axis is not None and not axis:
        points = []
    steps = np.array([point.step for point in points], dtype=np.float32)
    x = steps
    if axis is not None:
        known = np.array([(point.step, point.value) for point in axis], dtype=np.float64).reshape(-1, 2)
        x = np.interp(steps, [0, *known[:, 0]], [0, *known[:, 1]]).astype(np.float32)
    return Line(x, np.array([point.value for point in points], dtype=np.float32))


def paired(points: Sequence[MetricPoint], other: Sequence[MetricPoint]) -> Line:
    """Return a metric over another one, at the steps that have both, in their order."""
    by_step = dict(other)
    both = [(by_step[step], value) for step, value in points if step in by_step]
    values = np.array(both, dtype=np.float32).reshape(-1, 2)
    return Line(values[:, 0], values[:, 1])


def smoothed(line: Line, weight: float) -> Line:
    """Return the exponential moving average with this weight on the past, without the pull of its start to zero."""
    if not weight:
        return line
    bounds = {name: _average(bound, weight) for name in ("low", "high") if (bound := getattr(line, name)) is not None}
    return replace(line, y=_average(line.y, weight), **bounds)


def cut(line: Line, window: tuple[float, float] | None) -> Line:
    """Return the part of a curve within a window of x, and the point at each side of it."""
    if window is None or not line.x.size:
        return line
    is_inside = (line.x >= window[0]) & (line.x <= window[1])
    is_kept = is_inside.copy()
    is_kept[1:] |= is_inside[:-1]
    is_kept[:-1] |= is_inside[1:]
    low, high = (None if bound is None else bound[is_kept] for bound in (line.low, line.high))
    return Line(line.x[is_kept], line.y[is_kept], low, high)


def _average(values: Float32Array, weight: float) -> Float32Array:
    averages, total, share = np.full(values.shape, np.nan, dtype=np.float32), 0.0, 0.0
    for index, value in enumerate(values.tolist()):
        if np.isfinite(value):
            total = weight * total + (1 - weight) * value
            share = weight * share + (1 - weight)
            averages[index] = total / share
    return averages
