"""Ragged columns: one array of numbers a trajectory, concatenated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[Any]


def mean_of_each(arrays: Sequence[Numbers | None]) -> NDArray[np.float32]:
    """Return the mean of each array as float32; NaN where there is none, or an empty one."""
    means = np.full(len(arrays), np.nan, dtype=np.float32)
    sizes = _sizes(arrays)
    lengths = sizes[sizes > 0]
    if lengths.size:
        values = np.concatenate([array for array in arrays if array is not None])
        means[sizes > 0] = np.add.reduceat(values, np.cumsum(lengths) - lengths, dtype=np.float64) / lengths
    return means


def list_column(arrays: Sequence[Numbers | None], dtype: type[np.generic]) -> pa.ListArray:
    """Return a column of lists of `dtype`; None becomes null, and a number beyond the range of `dtype` infinite."""
    offsets = np.append(0, np.cumsum(_sizes(arrays))).astype(np.int32)
    kept = [array for array in arrays if array is not None]
    with np.errstate(over="ignore"):
        values = np.concatenate(kept).astype(dtype, copy=False) if kept else np.empty(0, dtype=dtype)
    is_null = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=is_null)


def _sizes(arrays: Sequence[Numbers | None]) -> NDArray[np.int64]:
    return np.array([0 if array is None else array.size for array in arrays], dtype=np.int64)
