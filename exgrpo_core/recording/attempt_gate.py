"""The gate before each write of a run's files, and the locks of files; `jobs/runs/attempts.py` says why."""

import contextlib
import fcntl
import logging
import os
import time
from pathlib import Path

from exgrpo_core.bounded_json import open_plain, read_plain, unseal
from exgrpo_core.durable_files import reserve
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
"""Held while the attempt is written; a recorded one's says which boot of which machine holds it."""
OUTCOME_FILE = "outcome.json"
OUTCOME_BYTES = 4096
"""More than the size of an outcome."""
EXIT_NOT_MINE = 3
_WAIT_SECONDS = 0.02
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
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
        if unseal(read_plain(attempt_path / OUTCOME_FILE)).get("status") != RunStatus.LOST:
            return True
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return True
    return any(name.isdecimal() and int(name) > int(attempt_path.name) for name in os.listdir(attempt_path.parent))


def reserve_outcome(attempt_path: Path) -> None:
    """Reserve the space that the outcome needs, so that it can be written even if the disk is full by then."""
    with contextlib.suppress(OSError):
        reserve(attempt_path / OUTCOME_FILE, OUTCOME_BYTES)


def exit_if_fenced() -> None:
    """End this process at once, before it writes, if its attempt is over or a later attempt was claimed."""
    for attempt_path in _current:
        if is_over(attempt_path):
            logger.error("%s is over or a later attempt was claimed; this worker exits.", attempt_path)
            logging.shutdown()
            os._exit(EXIT_NOT_MINE)


def this_boot() -> str:
    """Return the id of this machine's boot, "" if the system does not say.

    A lock on a file holds in all containers of the machine, so this names none; a worker's `boot_id`, by whose pids
    processes are ended, does.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class FileLock:
    """An exclusive lock on a file; child processes do not inherit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self, timeout_seconds: float = 0.0) -> bool:
        """Take the lock and return whether that succeeded within the timeout.

        `is_locked` of another process holds the lock for a moment; a short timeout is enough to wait for that.
        """
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up_at = time.monotonic() + timeout_seconds
        while not _try(self._file, fcntl.LOCK_EX):
            if time.monotonic() >= give_up_at:
                self.release()
                return False
            time.sleep(_WAIT_SECONDS)
        return True

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with open_plain(path) as file:
            return not _try(file.fileno(), fcntl.LOCK_SH)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _try(file: int, mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
