"""An attempt is a fencing token: a worker whose attempt is over or superseded ends itself before it writes.

This happens to a worker that was suspended or cut off so long that it was declared lost: its run may have been resumed,
and it must not write a checkpoint into the folder of a newer attempt.
"""

import logging
import os
from pathlib import Path

from jobs.runs.attempts import OUTCOME_FILE

logger = logging.getLogger(__name__)

EXIT_NOT_MINE = 3
_current: list[Path] = []
"""The folder of the attempt that this process works on, if any."""


def set_attempt(attempt_path: Path) -> None:
    """Set the attempt that this process works on."""
    _current[:] = [attempt_path]


def clear_attempt() -> None:
    """Record that this process works on no attempt any more."""
    _current.clear()


def is_over(attempt_path: Path) -> bool:
    """Return whether an attempt has an outcome, or a later one was claimed."""
    if (attempt_path / OUTCOME_FILE).exists():
        return True
    return any(name.isdecimal() and int(name) > int(attempt_path.name) for name in os.listdir(attempt_path.parent))


def exit_if_fenced() -> None:
    """End this process at once, before it writes, if its attempt is over or superseded."""
    for attempt_path in _current:
        if is_over(attempt_path):
            logger.error("%s is over or superseded by another attempt; this worker exits.", attempt_path)
            logging.shutdown()
            os._exit(EXIT_NOT_MINE)
