"""The metrics of a step, packed into one value of its row; their names are kept once a run.

Steps record thousands of times what few names call: a row for each number would repeat name and place with every one.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from struct import pack

import numpy as np

from db.tables.json_text import storable_text

VALUE = np.dtype("<f8")
"""One value; one that is no number is NaN."""


@lru_cache(maxsize=1024)
def stored_names(names: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return the key of names in this order, 63 bits that follow from them alone, and the names as they are stored."""
    stored = [storable_text(name) for name in names]
    digest = blake2b(json.dumps(stored).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1, stored


def pack_values(values: Iterable[float]) -> bytes:
    """Return values in the order of their names."""
    found = tuple(values)
    return pack(f"<{len(found)}d", *found)
