"""An exclusive lock on a file, which the kernel frees when its holder dies."""

import fcntl
import time
from pathlib import Path
from typing import IO

from exgrpo_core.bounded_json import open_plain

_WAIT_SECONDS = 0.02


class FileLock:
    """An exclusive lock on a file; child processes do not inherit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self, timeout_seconds: float = 0.0) -> bool:
        """Take the lock and return whether that succeeded within the timeout.

        `is_locked` of another process holds the lock for a moment; a short timeout is enough to wait for that.
        """
        file = self._path.open("ab")
        give_up_at = time.monotonic() + timeout_seconds
        while not _try(file, fcntl.LOCK_EX):
            if time.monotonic() >= give_up_at:
                file.close()
                return False
            time.sleep(_WAIT_SECONDS)
        self._file = file
        return True

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with open_plain(path) as file:
            return not _try(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _try(file: IO[bytes], mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
