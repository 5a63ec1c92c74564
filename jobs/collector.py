"""Python's garbage collector, which looks through all that an import made again and again, and finds nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""So many more objects than were freed make the collector look; Python's own 700 are reached thousands of times."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect nothing meanwhile, and never look at what came of it: modules stay until the process ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_rarely() -> None:
    """Let this process collect after `NEW_OBJECTS`."""
    gc.set_threshold(NEW_OBJECTS)
