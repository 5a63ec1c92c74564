"""The gate before each write of a run's files; `jobs/runs/attempts.py` says why."""

import logging
import os
from pathlib import Path

from exgrpo_core.bounded_json import read_plain, unseal

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
"""Held while the attempt is written; a recorded one's says which boot of which machine holds it."""
OUTCOME_FILE = "outcome.json"
OUTCOME_BYTES = 4096
"""More than the size of an outcome."""
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
    """Return whether an attempt has an outcome that is no guess, or a later one was claimed."""
    try:
        if unseal(read_plain(attempt_path / OUTCOME_FILE)).get("status") != "lost":
            return True
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return True
    return any(name.isdecimal() and int(name) > int(attempt_path.name) for name in os.listdir(attempt_path.parent))


def exit_if_fenced() -> None:
    """End this process at once, before it writes, if its attempt is over or a later attempt was claimed."""
    for attempt_path in _current:
        if is_over(attempt_path):
            logger.error("%s is over or a later attempt was claimed; this worker exits.", attempt_path)
            logging.shutdown()
            os._exit(EXIT_NOT_MINE)
