"""Runs a supervisor until a signal ends it or nothing is left to do: `python -m exgrpo.jobs.execution.supervisor`."""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.execution.supervisor.loop import LOOP_SECONDS, Supervisor, SupervisorSettings
from exgrpo.jobs.execution.supervisor.watch import StopPolicy
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.state import SupervisorRunningError
from exgrpo_core.process_setup import keep_private, log_in_utc, settle_user

logger = logging.getLogger(__name__)

WAIT_SECONDS = 1.0


def supervise(supervisor: Supervisor, index: Indexer, is_over: Callable[[], bool]) -> None:
    """Poll both twice a second, at least once, until `is_over`; running jobs continue without it."""
    while True:
        began_at = time.monotonic()
        supervisor.poll(index.num_unread)
        index.poll()
        if is_over():
            return
        time.sleep(max(0.0, LOOP_SECONDS - (time.monotonic() - began_at)))


def main(arguments: list[str] | None = None, launcher: LocalLauncher | None = None) -> int:
    """Run the supervisor from a command line; SIGTERM and SIGINT end it; its runs continue, or stop first."""
    parser = argparse.ArgumentParser(
        prog="python -m exgrpo.jobs.execution.supervisor", description="Start and watch runs."
    )
    parser.add_argument("--runs-root", type=Path, required=True, help="folder that holds the run directories")
    parser.add_argument("--max-running", type=int, default=1, help="runs that may run at once")
    parser.add_argument(
        "--stop-grace",
        type=float,
        default=DEFAULT_GRACE_SECONDS,
        help="seconds that a stop may take at least before the run is ended by force",
    )
    parser.add_argument(
        "--stop-runs", action="store_true", help="a signal also stops runs; the next start resumes them"
    )
    parser.add_argument("--wait", action="store_true", help="wait while another supervisor has the folder")
    parser.add_argument("--until-idle", action="store_true", help="end when nothing runs and nothing waits")
    options = parser.parse_args(arguments)
    keep_private()
    settle_user()
    log_in_utc()
    ends: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: ends.append(received))
    index = Indexer(os.environ.get(DATABASE_URL_VARIABLE), options.runs_root)
    # One that a command left behind may wait for the workbench's end, which is the shutdown.
    settings = SupervisorSettings(options.max_running, StopPolicy(options.stop_grace), not options.until_idle)
    supervisor = None
    while supervisor is None and not ends:
        try:
            supervisor = Supervisor(options.runs_root, launcher, settings)
        except SupervisorRunningError as error:
            if not options.wait:
                logger.error("%s", error)
                return 1
            time.sleep(WAIT_SECONDS)
    if supervisor is None:
        return 0
    try:
        ends_idle = options.until_idle
        supervise(supervisor, index, lambda: bool(ends) or (ends_idle and supervisor.is_idle and not index.is_behind))
        if ends and options.stop_runs:
            supervisor.interrupt()
            supervise(supervisor, index, lambda: supervisor.is_interrupted)
    finally:
        index.close()
        supervisor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
