"""Keeps the database's index of runs up to date from their files; never delays or fails runs."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from db.connections.opening import open_database
from db.connections.session import Database, DatabaseError, concerns_database
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
        self._retry_at = 0.0
        self._known: dict[str, tuple[str, str, int]] = {}
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
        work = self._work.setdefault(run.run_id, RunIndexing(run))
        work.set_state(state)

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

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> Database:
        if self._database is None:
            self._database = open_database(self._url, self._runs_root)
            self._known = list_ends(self._database)
        return self._database

    def _refresh(self, database: Database, give_up_at: float) -> None:
        for run_id, work in [*self._work.items()]:
            if work.is_over and self._known.get(run_id) == work.key:
                del self._work[run_id]
                continue
            if time.monotonic() >= give_up_at:
                break
            self._guarded(database, run_id, lambda work=work: work.advance(database, give_up_at))  # type: ignore[misc]
            if work.is_over and work.is_caught_up:
                self._known[run_id] = work.key
        for run_id in apply_journal(database, self._journal):
            self._known.pop(run_id, None)
            self._work.pop(run_id, None)

    def _guarded(self, database: Database, run_id: str, action: Callable[[], None]) -> None:
        """Do something for one run; one whose files are damaged is skipped and does not stop the others."""
        try:
            action()
        except Exception as error:  # files of one run, whatever they hold, must not end the others
            if concerns_database(error):
                raise
            message = first_line(error)
            if self._last_errors.get(run_id) != message:
                logger.warning("%s is not shown completely: %s", run_id, message)
            self._last_errors[run_id] = message
            self._work[run_id].record_failure(database, f"It is not shown completely: {message.rstrip('.')}.")
