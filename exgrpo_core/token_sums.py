"""Sums over the tokens of many trajectories, in pieces that stay in the processor's cache.

One array of a large step's tokens would be gigabytes, whose first use alone takes longer than the arithmetic.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from exgrpo_core.types import Float32Array, Float64Array, Int64Array

_TOKENS_AT_ONCE = 1 << 15


def row_lengths(rows: Sequence[Float32Array]) -> Int64Array:
    """Return the number of tokens of each row."""
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))


def token_sums(
    rows: Sequence[Float32Array], function: Callable[[Float64Array], Float64Array] | None = None
) -> Float64Array:
    """Return the sum over each row (T_i,), T_i > 0, of its values, or of what `function` makes of each of them."""
    lengths = row_lengths(rows)
    sums = np.empty(lengths.size, dtype=np.float64)
    for part in _parts(lengths):
        values = np.concatenate(rows[part], dtype=np.float64)
        starts = np.cumsum(lengths[part]) - lengths[part]
        sums[part] = np.add.reduceat(values if function is None else function(values), starts)
    return sums


def _parts(lengths: Int64Array) -> Iterator[slice]:
    """Yield the rows in parts of about as many tokens as fit the cache, in order."""
    ends = np.cumsum(lengths)
    start = 0
    while start < lengths.size:
        before = int(ends[start] - lengths[start])
        end = max(start + 1, int(np.searchsorted(ends, before + _TOKENS_AT_ONCE, side="right")))
        yield slice(start, end)
        start = end
