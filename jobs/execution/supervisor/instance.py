"""At most one supervisor has a runs root, and any process can see whether one has."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from db import DATABASE_URL_VARIABLE
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import UserError
from exgrpo_core.recording.attempt_gate import FileLock
from jobs.runs.control import DEFAULT_GRACE_SECONDS
from jobs.runs.directory import SUPERVISOR_FILE, SUPERVISOR_LOCK, WORKBENCH_FOLDER
from jobs.runs.launchers.local import start_detached

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


LOG_FILE = "supervisor.log"


def supervisor_command(
    runs_root: Path, max_running: int = 1, stop_grace_seconds: float = DEFAULT_GRACE_SECONDS
) -> list[str]:
    """Return the command line of a supervisor."""
    program = [sys.executable, "-P", "-m", "jobs.execution.supervisor"]
    options = ["--max-running", str(max_running), "--stop-grace", str(stop_grace_seconds)]
    return [*program, "--runs-root", str(runs_root.resolve()), *options]


def start_supervisor(runs_root: Path, database_url: str | None) -> "subprocess.Popen[bytes]":
    """Start a supervisor that outlives this process and ends when nothing is left to do.

    Its output goes to `workbench/supervisor.log`. The database's URL, which may hold a password, travels in the
    environment and not on the command line.

    Raises:
        LaunchError: It cannot be started.
    """
    folder = runs_root.resolve() / WORKBENCH_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    environment = {} if database_url is None else {DATABASE_URL_VARIABLE: database_url}
    with (folder / LOG_FILE).open("ab") as log:
        return start_detached(
            [*supervisor_command(runs_root), "--wait", "--until-idle"], log.fileno(), folder, environment
        )
