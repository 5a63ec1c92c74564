"""Smooth densities of positive samples on a common grid, so that few numbers are sent for samples of any size."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

NUM_POINTS = 120
_FINE = 8
_DRAWN_PERCENT = 98.0
_LEAST_WIDTH = 1e-9
MIN_SAMPLES = 30
"""Fewer samples give no density, which would look as sure as that of thousands; they are drawn as points."""

Floats = NDArray[np.float64]


def densities(samples: Mapping[str, Sequence[float]]) -> tuple[Floats, dict[str, Floats]]:
    """Return a grid and a Gaussian kernel density on it for each sample of at least `MIN_SAMPLES` finite numbers.

    The kernel's width is Silverman's rule of thumb, computed for each sample. The grid ends above 98% of each.
    """
    known = {name: _drawable(values) for name, values in samples.items()}
    known = {name: values for name, values in known.items() if values.size >= MIN_SAMPLES}
    if not known:
        return np.zeros(0), {}
    widths = {name: _width(values) for name, values in known.items()}
    reach = 2 * max(widths.values())
    low = min(values.min() for values in known.values()) - reach
    high = max(float(np.percentile(values, _DRAWN_PERCENT)) for values in known.values()) + reach
    edges = np.linspace(max(low, 0.0), high, NUM_POINTS * _FINE + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    curves = {name: _smooth(values, edges, widths[name]) for name, values in known.items()}
    return centres[_FINE // 2 :: _FINE], {name: curve[_FINE // 2 :: _FINE] for name, curve in curves.items()}


def _drawable(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    drawable: Floats = array[np.isfinite(array) & (array >= 0.0)]
    return drawable


def _width(values: Floats) -> float:
    quarters = np.percentile(values, [25, 75])
    spread = min(float(values.std()), float(quarters[1] - quarters[0]) / 1.349) or float(values.std())
    return max(0.9 * spread * float(values.size**-0.2), _LEAST_WIDTH, 1e-3 * float(abs(values).max()))


def _smooth(values: Floats, edges: Floats, width: float) -> Floats:
    """Return the density at the middle of each fine bin: the histogram under a Gaussian, mirrored at the left end."""
    step = float(edges[1] - edges[0])
    counts, _ = np.histogram(values, edges)
    num_reach = max(1, int(np.ceil(4 * width / step)))
    offsets = np.arange(-num_reach, num_reach + 1) * step
    kernel = np.exp(-0.5 * (offsets / width) ** 2)
    kernel /= kernel.sum()
    smooth = np.convolve(counts.astype(np.float64), kernel, mode="full")
    inside = smooth[num_reach : num_reach + counts.size]
    if edges[0] == 0.0:
        mirrored = smooth[:num_reach][::-1][: counts.size]
        inside[: mirrored.size] += mirrored
    return inside / (values.size * step)
