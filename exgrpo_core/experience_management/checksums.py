"""Checksums of token ids and log-probs: whether they are what was written, and which trajectories may be twins."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Checksums = Callable[[Iterable[Any], Iterable[int]], NDArray[np.uint32]]
"""The checksum of each array's memory after what gave the number at its place; 0 to begin with.

The arrays' type is open: the types of the Python versions that are supported do not know them as buffers.
"""


def _crc32(arrays: Iterable[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    return np.array(list(map(zlib.crc32, arrays, starts)), dtype=np.uint32)


def _xxh3(arrays: Iterable[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    """Return the lower 32 bits of each."""
    return np.array(list(map(xxhash.xxh3_64_intdigest, arrays, starts)), dtype=np.uint64).astype(np.uint32)


CHECKSUMS: dict[str, Checksums] = {"crc32": _crc32, "xxh3": _xxh3}
"""By the name that a snapshot keeps."""
OF_NEW_BUFFERS = "xxh3"
"""Takes less than half the time of crc32."""
WHERE_UNNAMED = "crc32"
"""What snapshots used that name none."""
