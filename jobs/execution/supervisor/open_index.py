"""Opening the database for a command, updated first if no supervisor does that."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from exgrpo.db.connections.opening import ForeignDatabaseError, find_difference, open_database, reset
from exgrpo.db.connections.session import (
    UNAVAILABLE_ERRORS,
    DamagedDatabaseError,
    Database,
    DatabaseError,
    check_pages,
    sqlite_path,
)
from exgrpo.db.connections.sqlite_files import refusal, set_aside
from exgrpo.db.queries import runs
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.supervisor_file import SupervisorRunningError, read_supervisor
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import first_line

logger = logging.getLogger(__name__)

_MAX_CHECKED_BYTES = 256 * 2**20
"""All pages of a larger file take long to read, next to a supervisor that writes to it."""


@contextmanager
def open_fresh_index(runs_root: Path, database_url: str | None) -> Iterator[Database]:
    """Yield the database with everything recorded so far; nothing else of the runs root is written.

    A running supervisor keeps the database up to date; without one, this program does. Where the database cannot be
    used or written, as in a folder that is read-only or not there, it is a temporary one, read from the files: nothing
    but time is lost.
    """
    with ExitStack() as stack:
        if database_url is None and not runs_root.exists():
            database_url = f"sqlite:///{stack.enter_context(TemporaryDirectory())}/index.db"
        try:
            if read_supervisor(runs_root) is None and not ingest_all(runs_root, database_url):
                raise DatabaseError("The database could not be brought up to date.")
            database = stack.enter_context(closing(open_database(database_url, runs_root)))
            runs.list_ends(database)
        except (*UNAVAILABLE_ERRORS, OSError) as error:
            why = f"{error.filename}: {explain(error)}." if isinstance(error, OSError) else first_line(error)
            logger.warning("%s The run directories are read instead.", why)
            url = f"sqlite:///{stack.enter_context(TemporaryDirectory())}/index.db"
            ingest_all(runs_root, url)
            database = stack.enter_context(closing(open_database(url, runs_root)))
        yield database


def ingest_all(runs_root: Path, database_url: str | None) -> bool:
    """Ingest everything recorded so far, and return whether the database could be used."""
    with closing(Indexer(database_url, runs_root)) as index:
        return index.catch_up()


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
    if not ingest_all(runs_root, database_url):
        raise DatabaseError("The database could not be brought up to date.")
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
