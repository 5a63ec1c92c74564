"""What this process does with garbage and with freed memory.

Python's collector scans all objects of imports repeatedly without freeing any, so it runs less often.
"""

import ctypes
import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""Net new objects that start a collection; Python's default of 700 is reached thousands of times."""
_PYTHONS_DEFAULT = gc.get_threshold()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Collect nothing within the block, and never scan again the objects that are alive at its end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def collect_rarely() -> None:
    """Collect after `NEW_OBJECTS` only, for imports in a process that Ray started."""
    gc.set_threshold(NEW_OBJECTS)


def collect_as_usual() -> None:
    """Collect as Python does, since a cycle may hold GPU memory, but never scan again the objects alive now."""
    gc.freeze()
    gc.set_threshold(*_PYTHONS_DEFAULT)


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
