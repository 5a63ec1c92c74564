"""Opens the database's index of runs and keeps it up to date from files; never delays, fails or changes runs."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.exc import SQLAlchemyError

from exgrpo.db.connections.opening import ForeignDatabaseError, OtherSchemaError, find_difference, open_database, reset
from exgrpo.db.connections.session import (
    UNAVAILABLE_ERRORS,
    DamagedDatabaseError,
    Database,
    DatabaseError,
    check_pages,
    concerns_database,
    file_inode,
    sqlite_path,
)
from exgrpo.db.connections.sqlite_files import refusal, set_aside
from exgrpo.db.ingest import annotations
from exgrpo.db.ingest.events import read_position, unannounced_runs
from exgrpo.db.queries import runs
from exgrpo.db.queries.runs import get_run, list_ends
from exgrpo.db.rows.runs import UnknownRunError
from exgrpo.jobs.execution.supervisor.run_index import RunIndexing
from exgrpo.jobs.runs.directory import RunDirectory, is_run_folder, list_run_directories, paths_of_runs
from exgrpo.jobs.runs.journal import Journal, JournalEntry, JournalKind
from exgrpo.jobs.runs.state import SupervisorRunningError, read_supervisor
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import first_line

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
PROGRESS_SECONDS = 2.0
"""Between two lines that say how many runs are still to read."""
REFRESH_SECONDS = 0.4
"""A poll that has more to do continues at the next one, so that a long backlog delays no start and no stop."""
LIST_SECONDS = 10.0
"""Time between two looks at runs that have ended: another machine may resume one."""
_REST = 20.0
"""Such a look is followed by so many times its own duration without one."""


class Indexer:
    """Keeps a database up to date with the files of a runs root, which it only reads.

    The database follows from the files, so a failed write is repeated later, and several programs may ingest at once.
    """

    def __init__(self, database_url: str | None, runs_root: Path, list_seconds: float = LIST_SECONDS) -> None:
        self._url = database_url
        self._runs_root = runs_root
        self._list_seconds = list_seconds
        self._journal = Journal(runs_root)
        self._database: Database | None = None
        self._file: int | None = None
        self._retry_at = 0.0
        self._last_error = ""
        self._say_at = time.monotonic() + PROGRESS_SECONDS
        self._ends: dict[str, tuple[str, str, int, datetime | None]] = {}
        self._runs: dict[str, RunIndexing] = {}
        self._look_at_all_at = self._check_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether files are known to hold more than the database."""
        return any(not run.is_caught_up for run in self._runs.values())

    @property
    def num_unread(self) -> int:
        """How many runs have ended while the database lacks part of them."""
        return sum(run.state.is_ended and not run.is_caught_up for run in self._runs.values())

    @property
    def is_reachable(self) -> bool:
        """Whether the database could be used last time."""
        return self._retry_at == 0.0

    def poll(self, budget_seconds: float = REFRESH_SECONDS) -> None:
        """Ingest what is new; when the database cannot be reached, try again some seconds later.

        Runs that have not ended are looked at each time, others when the journal names them, and now and then.
        """
        self._look()
        if time.monotonic() < self._retry_at:
            return
        try:
            self._ingest(self._open(), time.monotonic() + budget_seconds)
            self._retry_at, self._last_error = 0.0, ""
            self._say_progress()
        except UnknownRunError:  # another program has emptied the database
            self.close()
            self._read_all_again()
        except (DatabaseError, SQLAlchemyError) as error:
            if (sentence := first_line(error)) != self._last_error:
                logger.warning("The database is behind: %s", sentence)
            self._last_error = sentence
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self.close()
            is_foreign = isinstance(error, ForeignDatabaseError) and self._url is None
            if is_foreign or isinstance(error, DamagedDatabaseError):
                self._begin_anew()

    def _say_progress(self) -> None:
        if not self.num_unread:
            self._say_at = time.monotonic() + PROGRESS_SECONDS
        elif time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + PROGRESS_SECONDS
            logger.warning("Ended runs that are still to be read into the database: %d.", self.num_unread)

    def catch_up(self) -> bool:
        """Ingest everything recorded so far, and return whether the database could be used."""
        self.poll()
        while self.is_behind and self.is_reachable:
            self.poll()
        return self.is_reachable

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _look(self) -> None:
        began_at = time.monotonic()
        paths = {path.name: path for path in paths_of_runs(self._runs_root)}
        for run_id in self._runs.keys() - paths.keys():
            del self._runs[run_id]
        for run_id, path in paths.items():
            if run_id not in self._runs and is_run_folder(path):
                self._runs[run_id] = RunIndexing(RunDirectory(path))
        is_all = began_at >= self._look_at_all_at
        for run in self._runs.values():
            if is_all or run.is_due:
                run.look()
        if is_all:
            # A look that takes long, as on a file server, is taken less often.
            now = time.monotonic()
            self._look_at_all_at = now + max(self._list_seconds, _REST * (now - began_at))

    def _open(self) -> Database:
        if self._database is not None and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + self._list_seconds
            if find_difference(self._database) is not None:
                self.close()  # opened again, it is made again
        if self._database is None:
            self._database = self._open_with_own_schema()
            ends = list_ends(self._database)
            if self._ends.keys() - ends.keys():
                self._read_all_again()
            self._ends = ends
            self._file = file_inode(self._url, self._runs_root)
        elif file_inode(self._url, self._runs_root) != self._file:
            raise DamagedDatabaseError(
                f"{self._database.engine.url.database}: another file is in the database's place."
            )
        return self._database

    def _open_with_own_schema(self) -> Database:
        try:
            return open_database(self._url, self._runs_root)
        except OtherSchemaError as error:
            logger.warning("%s", error)
            with contextlib.closing(open_database(self._url, self._runs_root, checks_schema=False)) as database:
                reset(database, is_forced=False)
            return open_database(self._url, self._runs_root)

    def _begin_anew(self) -> None:
        """Put a SQLite file that cannot be used aside and ingest everything again."""
        path = sqlite_path(self._url, self._runs_root)
        if path is None:
            return
        with contextlib.suppress(OSError):
            set_aside(path)
            logger.warning("%s: is built again from the run directories.", path)
            self._read_all_again()
            self._retry_at = 0.0

    def _read_all_again(self) -> None:
        self._runs = {run_id: RunIndexing(run.directory, run.state) for run_id, run in self._runs.items()}

    def _ingest(self, database: Database, give_up_at: float) -> None:
        for run_id, run in self._runs.items():
            if not run.may_record and run.is_shown_by(self._ends.get(run_id)):
                run.is_caught_up = True
                continue
            if time.monotonic() >= give_up_at:
                break
            run.try_to_advance(database, give_up_at)
            if run.state.is_ended and run.is_caught_up and run.is_complete:
                self._ends[run_id] = run.key
        for run_id in apply_journal(database, self._journal):
            self._ends.pop(run_id, None)  # it may have been deleted, and be restored later
            if run_id in self._runs and get_run(database, run_id) is None:
                self._runs[run_id] = RunIndexing(self._runs[run_id].directory)  # it was removed and begun again
            elif run_id in self._runs:
                self._runs[run_id].is_due = True


def apply_journal(database: Database, journal: Journal) -> set[str]:
    """Write tags, notes, names and other entries of the journal into the database; return the runs of new entries.

    It reads from where the last read ended; of runs that are new in the database, all entries are ingested.
    """
    new_run_ids = unannounced_runs(database)
    saved = int(read_position(database, annotations.JOURNAL_SOURCE) or 0)
    entries, position = journal.read_from(saved)
    named = {entry.run_id for entry in entries}
    if new_run_ids:
        others = [entry for entry in entries if entry.run_id not in new_run_ids]
        entries = [entry for entry in journal.entries() if entry.run_id in new_run_ids] + others
    for entry in entries:
        try:
            is_repeated = entry.run_id in new_run_ids and (journal.runs_root / entry.run_id).exists()
            if entry.kind is JournalKind.DELETED and not is_repeated:
                annotations.forget_run(database, entry.run_id)
            _apply(database, entry)
        except UnknownRunError:
            continue  # its entries are ingested with the run itself
        except Exception as error:  # an entry of a restored journal, whatever it holds, must not end the program
            if concerns_database(error):
                raise
            logger.warning("A journal entry is skipped: %s", error)
    if position != saved or new_run_ids:
        annotations.save_journal_position(database, str(position), new_run_ids)
    return named


def _apply(database: Database, entry: JournalEntry) -> None:
    fields = {**entry.data, "at": datetime.fromisoformat(entry.at)}
    if entry.kind in _ADDED:
        annotations.annotate(database, _ADDED[entry.kind], entry.run_id, fields)
    elif entry.kind in _WITHDRAWN:
        annotations.withdraw(database, _WITHDRAWN[entry.kind], entry.run_id, fields)
    elif entry.kind in {JournalKind.ARCHIVED, JournalKind.UNARCHIVED}:
        annotations.change_run(database, entry.run_id, is_archived=entry.kind is JournalKind.ARCHIVED)
    elif entry.kind is JournalKind.RENAMED:
        annotations.change_run(database, entry.run_id, name=str(fields["name"]))


_ADDED = {
    JournalKind.TAGGED: "tags",
    JournalKind.NOTED: "notes",
    JournalKind.CASE_MARKED: "saved_cases",
    JournalKind.VERDICT_SET: "verdict_overrides",
    JournalKind.TRAJECTORY_MARKED: "trajectory_marks",
}
_WITHDRAWN = {
    JournalKind.UNTAGGED: "tags",
    JournalKind.CASE_UNMARKED: "saved_cases",
    JournalKind.VERDICT_CLEARED: "verdict_overrides",
    JournalKind.TRAJECTORY_UNMARKED: "trajectory_marks",
}
"""The table that an entry of each kind changes; most other kinds are only in the audit log."""


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
