"""At most one workbench serves a runs root, and a second one can find its address."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import UserError
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.runs.file_lock import FileLock, is_locked

LOCK_FILE = "workbench.lock"
RECORD_FILE = "workbench.json"
_TIMEOUT_SECONDS = 0.2


class WorkbenchRunningError(UserError):
    """Another workbench serves this runs root already; one sentence says which and where."""


@dataclass(frozen=True, slots=True)
class WorkbenchRecord:
    """The workbench that serves a runs root; it has no address until its pages answer."""

    pid: int
    since: datetime
    address: str


class WorkbenchInstance:
    """The lock of one runs root, held until `release` or until the process ends."""

    def __init__(self, runs_root: Path) -> None:
        """Take the lock.

        Raises:
            WorkbenchRunningError: Another workbench holds it.
        """
        folder = runs_root / WORKBENCH_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / RECORD_FILE
        self._lock = FileLock(folder / LOCK_FILE)
        self._since = datetime.now(UTC)
        if not self._lock.acquire(timeout_seconds=_TIMEOUT_SECONDS):
            raise WorkbenchRunningError(_describe(runs_root, _read(self._path)))
        self._write("")

    def record_link(self, link: str) -> None:
        """Record the address of the pages without the token in `link`."""
        self._write(link.partition("?")[0])

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        self._lock.release()

    def _write(self, address: str) -> None:
        content = {"pid": os.getpid(), "since": self._since.isoformat(timespec="seconds"), "address": address}
        write_whole(self._path, json.dumps(content), is_durable=False)


def read_workbench(runs_root: Path) -> WorkbenchRecord | None:
    """Return the workbench that serves a runs root, None when none does."""
    folder = runs_root / WORKBENCH_FOLDER
    return _read(folder / RECORD_FILE) if is_locked(folder / LOCK_FILE) else None


def _read(path: Path) -> WorkbenchRecord | None:
    try:
        content = read_json(path)
        since = datetime.fromisoformat(content["since"])
        return WorkbenchRecord(int(content["pid"]), since, str(content["address"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _describe(runs_root: Path, record: WorkbenchRecord | None) -> str:
    advice = "use the link that it printed, or end it first (Ctrl-C where it runs)"
    if record is None:
        return f"A workbench serves {runs_root} already; {advice}."
    address = f" at {record.address}" if record.address else ""
    since = f"{record.since:%Y-%m-%d %H:%M:%S} UTC"
    return f"A workbench serves {runs_root} already{address} (pid {record.pid}, since {since}); {advice}."
