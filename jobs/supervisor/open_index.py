"""Opening the database for a command, updated first if no supervisor does that."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from db.connections.opening import open_database
from db.connections.schema import current_revision, is_known, newest_revision
from db.connections.session import Database, DatabaseError, sqlite_path
from db.connections.sqlite_files import refusal
from db.queries import runs
from jobs.runs.directory import list_run_directories
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.instance import SupervisorRunningError
from jobs.supervisor.loop import Supervisor, SupervisorSettings

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 20.0
"""The processes of a run with an outcome end within this time, by force if necessary."""


@contextmanager
def open_fresh_index(runs_root: Path, database_url: str | None) -> Iterator[Database]:
    """Yield the database; if no supervisor runs, everything recorded so far is ingested first."""
    database = open_database(database_url, runs_root)
    try:
        ingest_all(runs_root, database_url)
        yield database
    finally:
        database.close()


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
    """
    from db.connections.schema import reset
    from jobs.supervisor.instance import read_supervisor

    if read_supervisor(runs_root) is not None:
        raise SupervisorRunningError(f"A supervisor runs for {runs_root}; end it first (Ctrl-C of `exgrpo up`).")
    database = open_database(database_url, runs_root, upgrades=False)
    try:
        reset(database)
    finally:
        database.close()
    ingest_all(runs_root, database_url)
    return len(list_run_directories(runs_root))


def describe_database(database_url: str | None, runs_root: Path) -> tuple[bool, str]:
    """Return whether the database can be used, and what it is or what is wrong, without changing it."""
    try:
        path = sqlite_path(database_url, runs_root)
        if path is not None and (sentence := refusal(path)):
            return False, sentence
        if path is not None and not path.is_file():
            return True, "SQLite, not created yet; the first run creates it"
        database = open_database(database_url, runs_root, upgrades=False)
    except DatabaseError as error:
        return False, str(error)
    try:
        return _describe_schema(database)
    finally:
        database.close()


def _describe_schema(database: Database) -> tuple[bool, str]:
    kind = "SQLite" if database.is_sqlite else "PostgreSQL"
    revision = current_revision(database)
    if revision is not None and not is_known(revision):
        return False, f"{kind}, schema {revision}, newer than {newest_revision()}, which this version knows"
    if revision != newest_revision():
        return True, f"{kind}, schema {revision or 'none'}, upgraded to {newest_revision()} when next used"
    return True, f"{kind}, schema {revision}, {sum(runs.count_runs(database).values())} runs"
