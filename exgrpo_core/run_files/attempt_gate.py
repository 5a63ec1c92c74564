"""The gate before each write of a run's files, and the clock of what is written; `jobs/runs/attempts.py` says why."""

import logging
import os
import time
from datetime import UTC, datetime, timedelta
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
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux's also counts while the machine sleeps
_BEGAN_AT = datetime.now(UTC)
_BEGAN_SECONDS = time.clock_gettime(_CLOCK)


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
    """End this process at once, before it writes, if its attempt is over or superseded."""
    for attempt_path in _current:
        if is_over(attempt_path):
            logger.error("%s is over or superseded by another attempt; this worker exits.", attempt_path)
            logging.shutdown()
            os._exit(EXIT_NOT_MINE)


def monotonic_utc_now() -> datetime:
    """Return the current moment in UTC, as if the system's clock had not been set since this process began."""
    return _BEGAN_AT + timedelta(seconds=time.clock_gettime(_CLOCK) - _BEGAN_SECONDS)
