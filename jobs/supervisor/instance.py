"""At most one supervisor looks after a runs root, and everyone can see whether one does."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import UserError
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.runs.file_lock import FileLock, is_locked

LOCK_FILE = "supervisor.lock"
HEARTBEAT_FILE = "supervisor.json"
_TIMEOUT_SECONDS = 0.2


class SupervisorRunningError(UserError):
    """Another supervisor looks after this runs root already."""


@dataclass(frozen=True, slots=True)
class SupervisorHeartbeat:
    """Who looks after a runs root, and when it last said so."""

    pid: int
    at: datetime


class SingleInstance:
    """The right to look after one runs root, for as long as the process lives or until `release`.

    The lock is the kernel's, so it goes with its holder however that one dies.
    """

    def __init__(self, runs_root: Path) -> None:
        """Take the right.

        Raises:
            SupervisorRunningError: Somebody else has it.
        """
        self._folder = runs_root / WORKBENCH_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = datetime.now(UTC)
        self._lock = FileLock(self._folder / LOCK_FILE)
        if not self._lock.acquire(timeout_seconds=_TIMEOUT_SECONDS):
            raise SupervisorRunningError(f"A supervisor looks after {runs_root} already.")

    def beat(self) -> None:
        """Say that this process is alive."""
        times = {"at": datetime.now(UTC), "since": self._since}
        record = {name: time.isoformat(timespec="milliseconds") for name, time in times.items()}
        content = json.dumps({"pid": os.getpid(), **record})
        write_whole(self._folder / HEARTBEAT_FILE, content, is_durable=False)

    def release(self) -> None:
        """Give the right back; a second time changes nothing."""
        self._lock.release()


def read_supervisor(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the living supervisor of a runs root, None when nobody looks after it."""
    folder = runs_root / WORKBENCH_FOLDER
    return _read_heartbeat(folder / HEARTBEAT_FILE) if is_locked(folder / LOCK_FILE) else None


def _read_heartbeat(path: Path) -> SupervisorHeartbeat:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return SupervisorHeartbeat(int(content["pid"]), datetime.fromisoformat(content["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return SupervisorHeartbeat(0, datetime.now(UTC))
