"""User annotations of runs: tags, notes, saved cases, verdicts, marks, names. The journal is their source.

Each change may come twice. Each raises UnknownRunError for a run that is not there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, update

from exgrpo.db.connections.session import Database
from exgrpo.db.ingest.events import forget_unannounced, run_source, save_position
from exgrpo.db.ingest.upsert import insert_new
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import storable_text
from exgrpo.db.tables.shared_reads import require_run_key

JOURNAL_SOURCE = "journal"
_REPLACED = (models.verdict_overrides, models.trajectory_marks)
"""Annotations whose newest one of a key counts. Of all others the first one stays."""
_Values = Mapping[str, Any]


def annotate(database: Database, table: str, run_id: str, fields: _Values) -> None:
    """Add a run's row to a table of annotations; `fields` have the values of its columns, and perhaps others."""

    def work(connection: Connection) -> None:
        into = models.metadata.tables[table]
        row = _row(
            connection, run_id, {column.name: fields[column.name] for column in into.c if column.name != "run_key"}
        )
        if into in _REPLACED:
            _delete(connection, into, row)
        insert_new(connection, into, [row])

    database.write(work)


def withdraw(database: Database, table: str, run_id: str, fields: _Values) -> None:
    """Remove a run's row from a table of annotations; `fields` have the parts of its key, and perhaps others."""
    database.write(
        lambda connection: _delete(connection, models.metadata.tables[table], _row(connection, run_id, fields))
    )


def change_run(database: Database, run_id: str, **values: str | bool) -> None:
    """Give a run another `name`, hide it from the list by `is_archived`, or show it again."""

    def work(connection: Connection) -> None:
        row = _row(connection, run_id, values)
        connection.execute(update(models.runs).where(models.runs.c.run_key == row["run_key"]).values(row))

    database.write(work)


def forget_run(database: Database, run_id: str) -> None:
    """Remove everything that the database knows of a run whose folder is gone; none of this id changes nothing."""

    def work(connection: Connection) -> None:
        positions = models.ingest_positions
        connection.execute(delete(models.runs).where(models.runs.c.run_id == run_id))
        connection.execute(delete(positions).where(positions.c.source == run_source(run_id)))
        forget_unannounced(connection, [run_id])

    database.write(work)


def save_journal_position(database: Database, position: str, announced: Iterable[str] = ()) -> None:
    """Keep how far the journal was read, and of which new runs all of it is in."""

    def work(connection: Connection) -> None:
        save_position(connection, JOURNAL_SOURCE, position)
        forget_unannounced(connection, announced)

    database.write(work)


def _row(connection: Connection, run_id: str, fields: _Values) -> dict[str, Any]:
    texts = {name: storable_text(value) if isinstance(value, str) else value for name, value in fields.items()}
    return {"run_key": require_run_key(connection, run_id)} | texts


def _delete(connection: Connection, table: Table, row: _Values) -> None:
    connection.execute(delete(table).where(*(column == row[column.name] for column in table.primary_key)))
