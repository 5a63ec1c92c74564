"""Keeps the database's index of runs up to date from their files; never delays or fails runs."""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from db.connections.opening import UnknownSchemaError, open_database
from db.connections.session import DamagedDatabaseError, Database, DatabaseError, concerns_database, sqlite_path
from db.connections.sqlite_files import set_aside
from db.queries.runs import list_ends
from exgrpo_core.errors import first_line
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal
from jobs.runs.state import RunState
from jobs.supervisor.journal_entries import apply_journal
from jobs.supervisor.run_index import RunIndexing

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
REFRESH_SECONDS = 0.4
"""A refresh that has more to do continues at the next one, so that a long backlog delays no start and no stop."""


class DatabaseIndex:
    """The supervisor's writer of the database. Its content follows from files, so a failed write is repeated later."""

    def __init__(self, database_url: str | None, runs_root: Path) -> None:
        self._url = database_url
        self._runs_root = runs_root
        self._journal = Journal(runs_root)
        self._database: Database | None = None
        self._file: int | None = None
        self._retry_at = 0.0
        self._known: dict[str, tuple[str, str, int]] = {}
        self._states: dict[str, tuple[RunDirectory, RunState]] = {}
        self._work: dict[str, RunIndexing] = {}
        self._last_errors: dict[str, str] = {}

    @property
    def is_behind(self) -> bool:
        """Whether files are known to hold more than the database."""
        return any(not work.is_caught_up for work in self._work.values())

    @property
    def is_reachable(self) -> bool:
        """Whether the last refresh reached the database."""
        return self._retry_at == 0.0

    def record_state(self, run: RunDirectory, state: RunState) -> None:
        """Ingest a run, or its new state, at the next refresh."""
        self._states[run.run_id] = run, state
        self._work.setdefault(run.run_id, RunIndexing(run, state)).set_state(state)

    def refresh(self, budget_seconds: float = REFRESH_SECONDS) -> None:
        """Bring the database up to date; when it cannot be reached, try again some seconds later."""
        if time.monotonic() < self._retry_at:
            return
        try:
            self._refresh(self._open(), time.monotonic() + budget_seconds)
            self._retry_at = 0.0
        except (DatabaseError, SQLAlchemyError) as error:
            logger.warning("The database is behind: %s", first_line(error))
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self.close()
            if isinstance(error, DamagedDatabaseError | UnknownSchemaError):
                self._begin_anew()

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> Database:
        if self._database is None:
            self._database = open_database(self._url, self._runs_root)
            self._known = list_ends(self._database)
            self._file = self._find_file()
        elif self._find_file() != self._file:
            raise DamagedDatabaseError(
                f"{self._database.engine.url.database}: another file is in the database's place."
            )
        return self._database

    def _find_file(self) -> int | None:
        """Return the inode of SQLite's file; an open one that was removed takes rows which nobody will see."""
        path = sqlite_path(self._url, self._runs_root)
        return path.stat().st_ino if path is not None and path.exists() else None

    def _begin_anew(self) -> None:
        """Put a SQLite file that cannot be used aside and ingest everything again.

        Only this process writes to it, since it is the supervisor of the runs.
        """
        path = sqlite_path(self._url, self._runs_root)
        if path is None:
            return
        with contextlib.suppress(OSError):
            set_aside(path)
            logger.warning("%s: is built again from the run directories.", path)
            self._work = {run.run_id: RunIndexing(run, state) for run, state in self._states.values()}
            self._retry_at = 0.0

    def _refresh(self, database: Database, give_up_at: float) -> None:
        for run_id, work in [*self._work.items()]:
            if work.is_over and self._known.get(run_id) == work.key:
                del self._work[run_id]
                continue
            if time.monotonic() >= give_up_at:
                break
            self._guarded(database, run_id, lambda work=work: work.advance(database, give_up_at))  # type: ignore[misc]
            if work.is_over and work.is_caught_up and work.is_shown:
                self._known[run_id] = work.key
        for run_id in apply_journal(database, self._journal):
            self._known.pop(run_id, None)
            self._work.pop(run_id, None)

    def _guarded(self, database: Database, run_id: str, action: Callable[[], None]) -> None:
        """Do something for one run; an error of the program or of its files does not stop the others."""
        try:
            action()
        except Exception as error:  # files of one run, whatever they hold, must not end the others
            if concerns_database(error):
                raise
            message = first_line(error)
            if self._last_errors.get(run_id) != message:
                logger.warning("%s is not shown completely: %s", run_id, message)
            self._last_errors[run_id] = message
            self._work[run_id].record_failure(database, error)
