"""At most one supervisor has a runs root, and any process can read its heartbeat."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.directory import SUPERVISOR_FILE, SUPERVISOR_LOCK, WORKBENCH_FOLDER
from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import UserError
from exgrpo_core.recording.attempt_gate import FileLock, is_locked

_TIMEOUT_SECONDS = 0.2


class SupervisorRunningError(UserError):
    """Another supervisor has this runs root already."""


class SingleInstance:
    """The lock of one runs root, held until `release` or until the process ends.

    The kernel frees it however the process ends.
    """

    def __init__(self, runs_root: Path, stop_grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """Take the lock.

        Raises:
            SupervisorRunningError: Another process holds it.
        """
        self._folder = runs_root / WORKBENCH_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = datetime.now(UTC)
        self._stop_grace_seconds = stop_grace_seconds
        self._lock = FileLock(self._folder / SUPERVISOR_LOCK)
        if not self._lock.acquire(timeout_seconds=_TIMEOUT_SECONDS):
            raise SupervisorRunningError(f"A supervisor is already running for {runs_root}; stop it first.")

    def beat(self, num_unread: int) -> None:
        """Write a heartbeat, with how many ended runs the database lacks part of."""
        times = {"at": datetime.now(UTC), "since": self._since}
        record = {name: time.isoformat(timespec="milliseconds") for name, time in times.items()}
        numbers = {"stop_grace_seconds": self._stop_grace_seconds, "num_unread": num_unread}
        content = json.dumps({"pid": os.getpid(), **record, **numbers})
        write_whole(self._folder / SUPERVISOR_FILE, content, is_durable=False)

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        self._lock.release()


@dataclass(frozen=True, slots=True)
class SupervisorHeartbeat:
    """Process id of a supervisor, the time of its newest heartbeat and of its start, None if that is unknown."""

    pid: int
    at: datetime
    since: datetime | None = None
    num_unread: int = 0
    """Ended runs that the database lacks part of."""
    stop_grace_seconds: float = DEFAULT_GRACE_SECONDS
    """How long it lets a stop take at least."""

    @property
    def age_seconds(self) -> float:
        """Seconds since the heartbeat was written."""
        return (datetime.now(UTC) - self.at).total_seconds()


def newest_heartbeat(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the newest heartbeat of a supervisor, None if none ever ran here or its file is damaged."""
    try:
        record = read_json(runs_root / WORKBENCH_FOLDER / SUPERVISOR_FILE)
        at, since = (
            None if (text := record.get(name)) is None else datetime.fromisoformat(text).astimezone(UTC)
            for name in ("at", "since")
        )
        grace_seconds = float(record.get("stop_grace_seconds", DEFAULT_GRACE_SECONDS))
        num_unread = int(record.get("num_unread", 0))
        return None if at is None else SupervisorHeartbeat(int(record["pid"]), at, since, num_unread, grace_seconds)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def read_supervisor(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the living supervisor of a runs root, None when there is none; its pid is 0 until its first heartbeat."""
    if not is_locked(runs_root / WORKBENCH_FOLDER / SUPERVISOR_LOCK):
        return None
    return newest_heartbeat(runs_root) or SupervisorHeartbeat(0, datetime.now(UTC))
