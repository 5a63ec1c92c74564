"""The SQLite file of MLflow, read for its traces and never changed.

Source: `SqlAlchemyStore` of MLflow 3.18.0.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from exgrpo.db.connections.trackio_files import has_table, open_sqlite

_COLUMNS = frozenset({"request_id", "experiment_id", "status"})


@dataclass(frozen=True, slots=True)
class MlflowTraces:
    """A file that is open."""

    connection: Connection

    def experiments(self) -> dict[int, str]:
        """Return the names of the experiments that have traces, by their ids."""
        query = (
            "SELECT experiment_id, name FROM experiments WHERE experiment_id IN (SELECT experiment_id FROM trace_info)"
        )
        return {row["experiment_id"]: row["name"] for row in self.connection.execute(query)}

    def newest(self) -> int:
        """Return the number of the last trace, 0 without any."""
        number: int = self.connection.execute("SELECT coalesce(max(rowid), 0) FROM trace_info").fetchone()[0]
        return number

    def traces(self, after: int, waiting: Sequence[int] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the traces after the one with a number, and the waiting ones before it, each with its own number.

        A trace has its tags, its spans, its assessments with their values as JSON, and whether it `is_in_progress`.
        """
        query = (
            "SELECT rowid AS number, request_id, experiment_id, status FROM trace_info"
            " WHERE rowid > ? OR rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"
        )
        for trace in self.connection.execute(query, (after, json.dumps([*waiting]))).fetchall():
            of_trace = trace["request_id"]
            tags = {
                row["key"]: row["value"]
                for table in ("trace_request_metadata", "trace_tags")
                for row in self._rows(f"SELECT key, value FROM {table} WHERE request_id = ?", of_trace)
            }
            spans = self._rows("SELECT content FROM spans WHERE trace_id = ? ORDER BY start_time_unix_nano", of_trace)
            found = self._rows(
                "SELECT name, assessment_type, value FROM assessments WHERE trace_id = ? AND valid IS NOT 0", of_trace
            )
            yield trace["number"], {
                "experiment_id": trace["experiment_id"], "tags": tags, "spans": [row["content"] for row in spans],
                "assessments": [tuple(row) for row in found], "is_in_progress": trace["status"] == "IN_PROGRESS",
            }  # fmt: skip

    def _rows(self, query: str, key: str) -> list[Any]:
        return self.connection.execute(query, (key,)).fetchall()


def has_mlflow_traces(file: Path) -> bool:
    """Whether a file is a SQLite file with MLflow's table of traces."""
    return has_table(file, "trace_info", _COLUMNS)


@contextmanager
def open_mlflow(file: Path) -> Iterator[MlflowTraces]:
    """Open a file of MLflow.

    Raises:
        UnreadableFileError: As `open_sqlite`.
    """
    with open_sqlite(file) as connection:
        yield MlflowTraces(connection)
