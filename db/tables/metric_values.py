"""The metrics of a step, packed into one value of its row; their names are stored once per run.

A run has thousands of steps but few metric names: a row for each number would repeat name and step each time.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from struct import pack

import numpy as np

from db.tables.json_text import storable_text

VALUE = np.dtype("<f8")
"""One value; NaN if it is not a number."""


@lru_cache(maxsize=1024)
def stored_names(names: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return the key of names in this order, 63 bits computed from them, and the names as they are stored."""
    stored = [storable_text(name) for name in names]
    digest = blake2b(json.dumps(stored).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1, stored


def pack_values(values: Iterable[float]) -> bytes:
    """Return values in the order of their names."""
    numbers = tuple(values)
    return pack(f"<{len(numbers)}d", *numbers)
