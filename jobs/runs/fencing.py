"""An attempt is a fencing token: a worker whose attempt is over or overtaken writes nothing more and ends itself.

That happens to a worker that was stopped or cut off for so long that it was given up: its run may have been resumed,
and it must not write a checkpoint into what is another attempt's by now.
"""

import logging
import os
from pathlib import Path

from jobs.runs.attempts import OUTCOME_FILE

logger = logging.getLogger(__name__)

EXIT_NOT_MINE = 3
_held: list[Path] = []
"""The folder of the attempt that this process works on, if it is a worker."""


def set_attempt(attempt_path: Path) -> None:
    """Say which attempt this process works on."""
    _held[:] = [attempt_path]


def clear_attempt() -> None:
    """Say that this process works on no attempt any more."""
    _held.clear()


def is_over(attempt_path: Path) -> bool:
    """Return whether an attempt has an outcome, or a later one was claimed."""
    if (attempt_path / OUTCOME_FILE).exists():
        return True
    return any(name.isdigit() and int(name) > int(attempt_path.name) for name in os.listdir(attempt_path.parent))


def exit_if_fenced() -> None:
    """End this process at once, and whatever it is about to write with it, if its attempt is over or overtaken."""
    for attempt_path in _held:
        if is_over(attempt_path):
            logger.error("%s is over or overtaken by another attempt; this worker ends itself.", attempt_path)
            logging.shutdown()
            os._exit(EXIT_NOT_MINE)
