"""The SQLite files of Trackio, each a project of its runs: opened to read, never changed.

Source: `SQLiteStorage` of Trackio 0.43.0.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError

LOG = "-wal"
"""The ending of the file with what a writer has not moved into the SQLite file yet."""
COLUMNS = frozenset({"run_id", "run_name", "step", "key", "messages", "metadata"})
"""Of a trace."""
_HEAD = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class TrackioProject:
    """A project that is open."""

    connection: sqlite3.Connection

    def runs(self) -> dict[str, str]:
        """Return the names of the runs by their ids, those that have only metrics too."""
        found = self.connection.execute(
            "SELECT run_id, run_name FROM traces UNION SELECT run_id, run_name FROM metrics"
        )
        return {run_id: str(name) for run_id, name in found}

    def newest(self) -> tuple[int, int]:
        """Return the numbers of the last trace and of the last row of metrics, 0 without any."""
        query = "SELECT (SELECT coalesce(max(rowid), 0) FROM traces), (SELECT coalesce(max(id), 0) FROM metrics)"
        trace, metrics = self.connection.execute(query).fetchone()
        return trace, metrics

    def traces(self, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the traces after the one with a number, each with its own."""
        return self._rows("SELECT rowid AS number, * FROM traces WHERE rowid > ? ORDER BY rowid", after)

    def metrics(self, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows of metrics after the one with a number, each with its own."""
        return self._rows("SELECT id AS number, * FROM metrics WHERE id > ? ORDER BY id", after)

    def _rows(self, query: str, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((row["number"], dict(row)) for row in self.connection.execute(query, (after,)))


def has_traces(file: Path) -> bool:
    """Whether a file is a SQLite file with Trackio's table of traces."""
    return has_table(file, "traces", COLUMNS)


def has_table(file: Path, table: str, columns: frozenset[str]) -> bool:
    """Whether a file is a SQLite file with a table of these columns."""
    try:
        with file.open("rb") as opened:
            if opened.read(len(_HEAD)) != _HEAD:
                return False
        with open_sqlite(file) as connection:
            names = {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
    except (OSError, UnreadableFileError):
        return False
    return names >= columns


@contextmanager
def open_project(file: Path) -> Iterator[TrackioProject]:
    """Open a project's file, with what its writer has not moved into it yet.

    Raises:
        UnreadableFileError: As `open_sqlite`.
    """
    with open_sqlite(file) as connection:
        yield TrackioProject(connection)


@contextmanager
def open_sqlite(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file to read, with what its writer has not moved into it yet.

    Raises:
        UnreadableFileError: It cannot be read as SQLite, also in the middle of the work.
    """
    is_written = any(file.with_name(file.name + ending).exists() for ending in (LOG, "-journal"))
    address = f"{file.absolute().as_uri()}?{'mode=ro' if is_written else 'immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.row_factory = sqlite3.Row
            yield connection
    except sqlite3.Error as error:
        raise UnreadableFileError(f"{file.name}: {error}") from None
