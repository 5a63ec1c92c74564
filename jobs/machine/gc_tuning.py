"""Fewer runs of Python's garbage collector, which scans all objects of imports repeatedly without freeing any."""

import gc
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
