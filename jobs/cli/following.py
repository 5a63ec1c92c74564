"""Following one run to its end, as its supervisor if there is no other."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from sqlalchemy.exc import SQLAlchemyError

from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import Database, DatabaseError
from exgrpo.db.queries.metrics import last_metrics
from exgrpo.db.queries.runs import get_run
from exgrpo.db.rows.display_names import BATCH_PASS_RATE
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.progress import count_pieces
from exgrpo.jobs.cli.options import EXIT_FAILURE, EXIT_STOPPED, print_json, print_result, print_status
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.execution.supervisor.instance import start_supervisor
from exgrpo.jobs.execution.supervisor.loop import Supervisor
from exgrpo.jobs.runs.control import INTERRUPTED
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.state import RunState, SupervisorRunningError, read_state, read_supervisor
from exgrpo_core.recording.run_status import RunStatus

POLL_SECONDS = 0.25
SETTLE_SECONDS = 10.0
"""Longest wait for another supervisor to ingest a run that ended."""
TAKE_OVER_SECONDS = 2.0


class RunFollower:
    """Follows one run, and acts as supervisor of its runs root while there is no other."""

    def __init__(self, runs_root: Path, database_url: str | None, run_id: str) -> None:
        self.run_id = run_id
        self._runs_root = runs_root
        self._database_url = database_url
        self._run = RunDirectory.open(runs_root, run_id)
        self._index = Indexer(database_url, runs_root)
        self._supervisor: Supervisor | None = None
        self._database: Database | None = None
        self._take_over_at = 0.0

    def poll(self) -> RunState:
        """Return the run's state, doing the supervisor's work if this process is the supervisor.

        A run that a shutdown left queued counts as stopped: the workbench that starts it waits for this process.
        """
        if self._supervisor is None and time.monotonic() >= self._take_over_at:
            self._take_over_at = time.monotonic() + TAKE_OVER_SECONDS
            self._take_over()
        if self._supervisor is not None:
            self._supervisor.poll(self._index.num_unread)
            self._index.poll()
            state = self._supervisor.state_of(self.run_id)
            if state is not None:
                is_left = state.status is RunStatus.QUEUED and self._supervisor.leaves(self.run_id)
                return replace(state, status=RunStatus.STOPPED, reason=INTERRUPTED) if is_left else state
        return read_state(self._run)

    def metrics(self) -> dict[str, float]:
        """Return the run's newest metrics, none while the database cannot be read."""
        try:
            return last_metrics(self._open(), self.run_id)
        except (DatabaseError, SQLAlchemyError):
            return {}

    def finish(self, state: RunState) -> None:
        """Wait until the database has all of the run that ended, then release everything."""
        if self._supervisor is not None:
            self._index.catch_up()
        give_up_at = time.monotonic() + SETTLE_SECONDS
        while (
            self._supervisor is None
            and read_supervisor(self._runs_root) is not None
            and not self._is_end_in_database(state)
            and time.monotonic() < give_up_at
        ):
            time.sleep(POLL_SECONDS)
        self.close()

    def _is_end_in_database(self, state: RunState) -> bool:
        """Return whether another supervisor has ingested all of the run, which shows its end last of all."""
        try:
            row = get_run(self._open(), self.run_id)
        except (DatabaseError, SQLAlchemyError):
            return True  # commands then read the run directories
        return row is not None and (row.status, row.attempt) == (state.status, state.attempt)

    def close(self) -> None:
        """Release everything; the run itself continues."""
        self._index.close()
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> Database:
        if self._database is None:
            self._database = open_database(self._database_url, self._runs_root)
        return self._database

    def _take_over(self) -> None:
        try:
            self._supervisor = Supervisor(self._runs_root)
        except SupervisorRunningError:
            self._supervisor = None


METRICS_SECONDS = 1.0


class RunProgress:
    """Shows one run on stderr; without a terminal it prints only changes of the state."""

    def __init__(self, runs_root: Path, run_id: str) -> None:
        self._console = Console(stderr=True)
        self._run = RunDirectory.open(runs_root, run_id)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task("queued", total=count_pieces(self._run), figures="")
        self._status = ""
        self._metrics_at = 0.0

    def __enter__(self) -> "RunProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, state: RunState, follower: RunFollower) -> None:
        """Show the run's state, step and newest figures."""
        if state.status != self._status and not self._console.is_terminal:
            self._console.print(f"{follower.run_id}: {state.status}")
        self._status = state.status
        step = state.heartbeat.step if state.heartbeat else 0
        total = count_pieces(self._run)
        self._progress.update(self._task, completed=step, total=total, description=state.status)
        if self._console.is_terminal and time.monotonic() >= self._metrics_at:
            self._metrics_at = time.monotonic() + METRICS_SECONDS
            self._progress.update(self._task, figures=_figures(follower.metrics()))


def _figures(metrics: dict[str, float]) -> str:
    if not metrics:
        return ""
    return (
        f"{BATCH_PASS_RATE} {metrics.get('reward/pass_at_1', 0.0):.3f}  "
        f"buffer {metrics.get('buffer/num_questions', 0):.0f}  retired {metrics.get('buffer/num_retired', 0):.0f}"
    )


def leave_to_supervisor(runs_root: Path, database_url: str | None) -> None:
    """Start a supervisor that ends when nothing is left to do, unless one is running already."""
    if read_supervisor(runs_root) is None:
        start_supervisor(runs_root, database_url)


def follow(runs_root: Path, database_url: str | None, run_id: str) -> RunState:
    """Show a run's progress until it has ended; Ctrl-C or SIGTERM asks it to stop, another Ctrl-C ends the command."""
    print_status(f"{run_id} (log: {runs_root / run_id / 'log.txt'})")
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda sent, _frame: received.append(sent)) for number in numbers}
    follower = RunFollower(runs_root, database_url, run_id)
    has_requested_stop = False
    try:
        with RunProgress(runs_root, run_id) as progress:
            while not (state := follower.poll()).is_ended:
                progress.show(state, follower)
                if received and not has_requested_stop:
                    has_requested_stop = True
                    _request_stop(runs_root, run_id)
                if received.count(signal.SIGINT) > 1:
                    print_status(f"{run_id} continues without this command; `exgrpo stop {run_id}` ends it.")
                    raise typer.Exit(130)
                time.sleep(POLL_SECONDS)
            progress.show(state, follower)
        follower.finish(state)
        return state
    finally:
        follower.close()
        for number, handler in previous.items():
            signal.signal(number, handler)


def follow_unless(detach: bool, runs_root: Path, database_url: str | None, run_id: str, as_json: bool) -> RunState:
    """Follow a job that was just queued to its end; if `detach`, print its id and end the command instead."""
    if not detach:
        return follow(runs_root, database_url, run_id)
    leave_to_supervisor(runs_root, database_url)
    print_json({"run_id": run_id}) if as_json else print_result(run_id)
    raise typer.Exit


def _request_stop(runs_root: Path, run_id: str) -> None:
    print_status("Stopping after the current step; Ctrl-C again leaves the run running.")
    try:
        run_actions.stop(runs_root, run_id)
    except CommandError as error:
        print_status(str(error))


def exit_as(state: RunState) -> None:
    """End this command with the exit code of the run: 0, 3 if it was stopped, 1 if it failed or was lost."""
    if state.status is RunStatus.FINISHED:
        return
    if state.reason:
        print_status(f"Run {state.status}: {state.reason}")
    raise typer.Exit(EXIT_STOPPED if state.status is RunStatus.STOPPED else EXIT_FAILURE)
