"""Following one run to its end, as its supervisor if there is no other."""

import time
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from db.connections.opening import open_database
from db.connections.session import Database, DatabaseError
from db.queries.metrics import last_metrics
from jobs.runs.lookup import open_run, state_of
from jobs.runs.state import RunState
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.instance import SupervisorRunningError
from jobs.supervisor.loop import Supervisor

POLL_SECONDS = 0.25
TAKE_OVER_SECONDS = 2.0


class RunFollower:
    """Follows one run, and acts as supervisor of its runs root while there is no other."""

    def __init__(self, runs_root: Path, database_url: str | None, run_id: str) -> None:
        self.run_id = run_id
        self._runs_root = runs_root
        self._database_url = database_url
        self._run = open_run(runs_root, run_id)
        self._index = DatabaseIndex(database_url, runs_root)
        self._supervisor: Supervisor | None = None
        self._database: Database | None = None
        self._take_over_at = 0.0

    def poll(self) -> RunState:
        """Return the run's state, doing the supervisor's work if this process is the supervisor."""
        if self._supervisor is None and time.monotonic() >= self._take_over_at:
            self._take_over_at = time.monotonic() + TAKE_OVER_SECONDS
            self._take_over()
        if self._supervisor is not None:
            self._supervisor.poll()
            state = self._supervisor.state_of(self.run_id)
            if state is not None:
                return state
        return state_of(self._runs_root, self._run)

    def metrics(self) -> dict[str, float]:
        """Return the run's newest metrics, none while the database cannot be read."""
        try:
            if self._database is None:
                self._database = open_database(self._database_url, self._runs_root)
            return last_metrics(self._database, self.run_id)
        except (DatabaseError, SQLAlchemyError):
            return {}

    def finish(self) -> None:
        """Ingest the rest, if this process is the supervisor, and release everything."""
        while self._supervisor is not None and self._index.is_behind and self._index.is_reachable:
            self._supervisor.poll()
        self.close()

    def close(self) -> None:
        """Release everything; the run itself continues."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        if self._database is not None:
            self._database.close()
            self._database = None

    def _take_over(self) -> None:
        try:
            self._supervisor = Supervisor(self._runs_root, self._index)
        except SupervisorRunningError:
            self._supervisor = None
