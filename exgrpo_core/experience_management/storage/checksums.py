"""Checksums of token ids and log-probs: whether they are what was written, and which trajectories may be duplicates."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Checksums = Callable[[Sequence[Any], Iterable[int]], NDArray[np.uint32]]
"""The checksums (B,), 32 bits, of B contiguous arrays. Each goes on from the number at its place, 0 to begin with.

The numbers may be endless. The arrays' type is open: numpy's types for Python 3.11 do not know them as buffers.
"""


def _crc32(arrays: Sequence[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    return np.array(list(map(zlib.crc32, arrays, starts)), dtype=np.uint32)


def _xxh3(arrays: Sequence[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    """Return the lower 32 bits of each."""
    return np.array(list(map(xxhash.xxh3_64_intdigest, arrays, starts)), dtype=np.uint64).astype(np.uint32)


CHECKSUMS: dict[str, Checksums] = {"crc32": _crc32, "xxh3": _xxh3}
"""By the name that a snapshot keeps."""
DEFAULT_CHECKSUM = "xxh3"
"""Takes less than half the time of crc32."""
LEGACY_CHECKSUM = "crc32"
"""What snapshots used that name none."""
