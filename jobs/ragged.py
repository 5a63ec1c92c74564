"""Ragged columns: one array of numbers a trajectory, laid end to end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[Any]


def mean_of_each(arrays: Sequence[Numbers | None]) -> NDArray[np.float32]:
    """Return the mean of each array as float32; NaN where there is none, or an empty one."""
    means = np.full(len(arrays), np.nan, dtype=np.float32)
    kept = [(place, array) for place, array in enumerate(arrays) if array is not None and array.size]
    if not kept:
        return means
    lengths = np.array([array.size for _, array in kept])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    sums = np.add.reduceat(np.concatenate([array for _, array in kept]), starts, dtype=np.float64)
    means[[place for place, _ in kept]] = sums / lengths
    return means


def list_column(arrays: Sequence[Numbers | None], dtype: type[np.generic]) -> pa.ListArray:
    """Return a column of lists of `dtype`; None becomes null, and infinite what `dtype` cannot hold."""
    lengths = [0 if array is None else array.size for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    kept = [array for array in arrays if array is not None]
    with np.errstate(over="ignore"):
        values = np.concatenate(kept).astype(dtype, copy=False) if kept else np.empty(0, dtype=dtype)
    is_null = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=is_null)
