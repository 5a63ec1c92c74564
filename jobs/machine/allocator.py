"""What this process does with freed memory."""

import ctypes
import os
import time

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""

NUM_CACHED_PRODUCTS = "64"
"""Shapes of products, more than a micro-batch has; with oneDNN's 1,024 SmolLM2-135M grew by 100 MB a step."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process: the kernel would fill each page that comes back with zeros.

    Logits and activations are freed and allocated many times a second; `FreedMemory` gives back what adds up. Call it
    before the first product: oneDNN writes code for each shape of a product, which lies between activations and leaves
    gaps that nothing fits into, so only the newest is kept. Freed memory is not kept where there is no `mallopt`.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", NUM_CACHED_PRODUCTS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class FreedMemory:
    """Gives memory that was freed and kept back to the kernel, but seldom.

    Arrays of each step have other sizes, and gaps between them that nothing fits into add up: SmolLM2-135M grew from
    4.4 to 7.9 GB in a hundred steps.
    """

    def __init__(self, seconds_between: float = 5.0) -> None:
        self._seconds_between = seconds_between
        self._next_at = 0.0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def give_back(self) -> None:
        """Give it back, unless that was done a short time ago or there is no `malloc_trim`."""
        now = time.monotonic()
        if self._trim is not None and now >= self._next_at:
            self._trim(0)
            self._next_at = now + self._seconds_between
