"""Starting a supervisor."""

import subprocess
import sys
from pathlib import Path

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.launchers.local import start_detached

LOG_FILE = "supervisor.log"


def supervisor_command(
    runs_root: Path, max_running: int = 1, stop_grace_seconds: float = DEFAULT_GRACE_SECONDS
) -> list[str]:
    """Return the command line of a supervisor."""
    program = [sys.executable, "-P", "-m", "exgrpo.jobs.execution.supervisor"]
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
