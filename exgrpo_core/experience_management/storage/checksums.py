"""Checksums of token ids and log-probs, to detect damage and possible duplicates."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Checksums = Callable[[Sequence[Any], Iterable[int]], NDArray[np.uint32]]
"""The checksums (B,), 32 bits, of B contiguous arrays. Each continues from the number at its position; 0 starts anew.

The iterable of numbers may be endless. The arrays are typed Any, since numpy's stubs for Python 3.11 lack buffers.
"""


def _crc32(arrays: Sequence[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    return np.array(list(map(zlib.crc32, arrays, starts)), dtype=np.uint32)


def _xxh3(arrays: Sequence[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    """Return the lower 32 bits of each."""
    return np.array(list(map(xxhash.xxh3_64_intdigest, arrays, starts)), dtype=np.uint64).astype(np.uint32)


CHECKSUMS: dict[str, Checksums] = {"crc32": _crc32, "xxh3": _xxh3}
"""By the name that a snapshot stores."""
DEFAULT_CHECKSUM = "xxh3"
"""More than twice as fast as crc32."""
LEGACY_CHECKSUM = "crc32"
"""The checksum of snapshots that name none."""
