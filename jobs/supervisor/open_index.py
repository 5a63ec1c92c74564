"""Opening the database for a command, updated first if no supervisor does that."""

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from db.connections.opening import ForeignDatabaseError, find_difference, open_database, reset
from db.connections.session import UNAVAILABLE_ERRORS, DamagedDatabaseError, Database, check_pages, sqlite_path
from db.connections.sqlite_files import refusal, set_aside
from db.queries import runs
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import first_line
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory, list_run_directories
from jobs.runs.state import RunState, read_state
from jobs.supervisor.indexing import REFRESH_SECONDS, DatabaseIndex
from jobs.supervisor.instance import SupervisorRunningError, read_supervisor
from jobs.supervisor.loop import Supervisor, SupervisorSettings

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
LIST_SECONDS = 10.0
"""Time between two lists of the runs: another machine may start one, or resume one that had ended."""
_MAX_CHECKED_BYTES = 256 * 2**20
"""All pages of a larger file take long to read, beside a supervisor that writes to it."""
_SETTLE_SECONDS = 20.0
"""The processes of a run with an outcome end within this time, by force if necessary."""


@contextmanager
def open_fresh_index(runs_root: Path, database_url: str | None) -> Iterator[Database]:
    """Yield the database; if no supervisor runs, everything recorded so far is ingested first.

    Where it cannot be used, it is a temporary one, read from the files: nothing but time is lost.
    """
    with ExitStack() as stack:
        try:
            ingest_all(runs_root, database_url)
            database = stack.enter_context(closing(open_database(database_url, runs_root)))
            runs.list_ends(database)
        except (*UNAVAILABLE_ERRORS, OSError) as error:
            why = f"{error.filename}: {explain(error, runs_root)}." if isinstance(error, OSError) else first_line(error)
            logger.warning("%s The run directories are read instead.", why)
            folder = stack.enter_context(TemporaryDirectory())
            database = stack.enter_context(closing(_read_into(f"sqlite:///{folder}/index.db", runs_root)))
        yield database


def _read_into(database_url: str, runs_root: Path) -> Database:
    index = DatabaseIndex(database_url, runs_root)
    FilesFollower(index, runs_root).poll(budget_seconds=math.inf)
    index.close()
    return open_database(database_url, runs_root)


class FilesFollower:
    """Brings a database up to date by the run directories alone."""

    def __init__(self, index: DatabaseIndex, runs_root: Path, list_seconds: float = LIST_SECONDS) -> None:
        self._index = index
        self._runs_root = runs_root
        self._list_seconds = list_seconds
        self._states: dict[str, RunState] = {}
        self._live: list[RunDirectory] = []
        self._list_at = 0.0

    def poll(self, budget_seconds: float = REFRESH_SECONDS) -> None:
        """Ingest what is new: of runs that have not ended always, of others and new ones now and then."""
        if time.monotonic() >= self._list_at:
            self._live = list_run_directories(self._runs_root)
            self._list_at = time.monotonic() + self._list_seconds
        for run in self._live:
            self._read(run)
        self._live = [run for run in self._live if not self._states[run.run_id].is_ended]
        self._index.refresh(budget_seconds)

    def _read(self, run: RunDirectory) -> None:
        try:
            state = read_state(run)
        except OSError as error:
            state = RunState(RunStatus.LOST, f"It cannot be read: {error}", 0, None)
        if state.differs_from(self._states.get(run.run_id)):
            self._index.record_state(run, state)
            self._states[run.run_id] = state


def ingest_all(runs_root: Path, database_url: str | None) -> bool:
    """Ingest everything recorded so far, without starting runs; False if a supervisor runs already."""
    index = DatabaseIndex(database_url, runs_root)
    try:
        supervisor = Supervisor(runs_root, index, settings=SupervisorSettings(max_running=0))
    except SupervisorRunningError:
        return False
    try:
        settle_until = time.monotonic() + _SETTLE_SECONDS
        supervisor.poll()
        while supervisor.is_settling and time.monotonic() < settle_until:
            time.sleep(_POLL_SECONDS)
            supervisor.poll()
        while index.is_behind and index.is_reachable:
            supervisor.poll()
    finally:
        supervisor.close()
    return True


def rebuild_index(runs_root: Path, database_url: str | None) -> int:
    """Drop the database, build it again from files and return the number of runs.

    Raises:
        SupervisorRunningError: A supervisor writes to it.
        ForeignDatabaseError: `database_url` names a database of another program.
    """
    if read_supervisor(runs_root) is not None:
        raise SupervisorRunningError(f"A supervisor runs for {runs_root}; end it first (Ctrl-C of `exgrpo up`).")
    try:
        with closing(open_database(database_url, runs_root, checks_schema=False)) as database:
            check_pages(database)
            reset(database)
    except (DamagedDatabaseError, ForeignDatabaseError) as error:
        if database_url and isinstance(error, ForeignDatabaseError):
            raise
        path = sqlite_path(database_url, runs_root)
        if path is None:
            raise
        set_aside(path)
    ingest_all(runs_root, database_url)
    return len(list_run_directories(runs_root))


def describe_database(database_url: str | None, runs_root: Path) -> tuple[bool, str]:
    """Return whether the database can be used, and what it is or what is wrong, without changing it."""
    try:
        path = sqlite_path(database_url, runs_root)
        if path is not None and (sentence := refusal(path)):
            return False, sentence
        if path is not None and not path.exists():
            return True, "SQLite, not created yet; the first run creates it"
        if path is not None and not os.access(path.parent, os.W_OK):
            return True, "SQLite, in a folder that cannot be written: commands and pages read the run directories"
        with closing(open_database(database_url, runs_root, checks_schema=False)) as database:
            if path is not None and path.stat().st_size <= _MAX_CHECKED_BYTES:
                check_pages(database)
            return _describe_schema(database)
    except UNAVAILABLE_ERRORS as error:
        return False, first_line(error)


def _describe_schema(database: Database) -> tuple[bool, str]:
    kind = "SQLite" if database.is_sqlite else "PostgreSQL"
    difference = find_difference(database)
    if difference is None:
        return True, f"{kind}, {sum(runs.count_runs(database).values())} runs"
    return True, f"{kind}, {difference or 'empty'}, built from the run directories when next used"
