"""The state of a run, by its files and its processes alone, and that of the supervisor."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.directory import (
    SUPERVISOR_FILE,
    SUPERVISOR_LOCK,
    WORKBENCH_FOLDER,
)
from exgrpo.jobs.specs.base import ENTRY_POINTS as REWARD_ENTRY_POINTS
from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import FieldError, UserError
from exgrpo_core.methods.loading import (
    ALLOWED_CODE_VARIABLE,
    CODE_FOLDER_VARIABLE,
    ENTRY_POINTS,
    KINDS,
    module_elsewhere,
)
from exgrpo_core.recording.attempt_gate import FileLock, is_locked

CONTACT_FILE = "ray.json"
CONTACT_TIMEOUT_SECONDS = 0.2


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
        code = [os.environ.get(ALLOWED_CODE_VARIABLE, ""), os.environ.get(CODE_FOLDER_VARIABLE, "")]
        content = json.dumps({"pid": os.getpid(), **record, **numbers, "code": code})
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
    code: tuple[str, str] | None = None
    """Modules that its runs may load, separated by commas, and the folder where they are found."""

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
        code = (str(record["code"][0]), str(record["code"][1])) if "code" in record else None
        pid = int(record["pid"])
        return None if at is None else SupervisorHeartbeat(pid, at, since, num_unread, grace_seconds, code)
    except (OSError, ValueError, LookupError, TypeError, OverflowError):
        return None


def read_supervisor(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the living supervisor of a runs root, None when there is none; its pid is 0 until its first heartbeat."""
    if not is_locked(runs_root / WORKBENCH_FOLDER / SUPERVISOR_LOCK):
        return None
    return newest_heartbeat(runs_root) or SupervisorHeartbeat(0, datetime.now(UTC))


def refuse_code(runs_root: Path, content: Mapping[str, Any]) -> None:
    """Refuse the fields of a specification that name code which the living supervisor, who starts runs, cannot load.

    Raises:
        FieldError: It is one.
    """
    supervisor = read_supervisor(runs_root)
    if supervisor is None or supervisor.code is None:
        return
    algorithm, data = content.get("algorithm", {}), content.get("data", {})
    named = [
        *((f"algorithm.{setting}", ENTRY_POINTS, [algorithm.get(setting, "")]) for setting in KINDS),
        ("data.rewards", REWARD_ENTRY_POINTS, list(data.get("rewards", ()))),
        ("reward_parts", REWARD_ENTRY_POINTS, list(content.get("reward_parts", ()))),
    ]
    for field, group, names in named:
        for name in names:
            if module := module_elsewhere(name, group, *supervisor.code):
                raise FieldError(
                    f"the workbench that is running cannot load {name}; end it, and start it again in the folder of "
                    f"{module} with {ALLOWED_CODE_VARIABLE}={module}.",
                    field,
                )
