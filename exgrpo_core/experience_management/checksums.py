"""Checksums of token ids and log-probs: whether they are what was written, and which trajectories may be twins."""

import zlib
from collections.abc import Callable

import xxhash

Checksum = Callable[[memoryview, int], int]
"""The checksum, 32 bits, of an array's memory after what gave the second number; 0 to begin with."""

_BITS = 0xFFFFFFFF


def _xxh3(data: memoryview, start: int) -> int:
    return xxhash.xxh3_64_intdigest(data, start) & _BITS


CHECKSUMS: dict[str, Checksum] = {"crc32": zlib.crc32, "xxh3": _xxh3}
"""By the name that a snapshot keeps."""
OF_NEW_BUFFERS = "xxh3"
"""Takes less than half the time of crc32."""
WHERE_UNNAMED = "crc32"
"""What snapshots used that name none."""
