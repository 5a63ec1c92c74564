"""The SQLite file of MLflow, read for its traces and never changed.

Source: `SqlAlchemyStore` of MLflow 3.18.0.
"""

from collections.abc import Iterator
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

    def traces(self, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the traces after the one with a number, each with its own, its tags, spans and assessments."""
        query = "SELECT rowid AS number, request_id, experiment_id FROM trace_info WHERE rowid > ? ORDER BY rowid"
        for trace in self.connection.execute(query, (after,)).fetchall():
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
                "assessments": [tuple(row) for row in found],
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
