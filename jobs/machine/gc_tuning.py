"""Python's garbage collector, which looks through all that an import made again and again, and finds nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""So many more objects than were freed make the collector look; Python's own 700 are reached thousands of times."""
_PYTHONS_OWN = gc.get_threshold()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Collect nothing within, and never look again at objects that are alive at its end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def collect_rarely() -> None:
    """Collect after `NEW_OBJECTS`: where imports begin by themselves, in a process that Ray started."""
    gc.set_threshold(NEW_OBJECTS)


def collect_as_usual() -> None:
    """Collect as Python does, but never look again at what is alive now: a cycle may hold a GPU's memory."""
    gc.freeze()
    gc.set_threshold(*_PYTHONS_OWN)
