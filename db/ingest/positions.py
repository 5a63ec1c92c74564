"""How far each source of files was read: saved in the same transaction as what was read."""

from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, select

from db.connections.session import Database
from db.tables import models

_UNANNOUNCED = "untold:"
"""Source of a run whose journal entries were not ingested yet."""


def read_position(database: Database, source: str) -> str | None:
    """Return the position from which to continue reading `source`, None at its start."""
    table = models.ingest_positions
    with database.read() as connection:
        return connection.scalar(select(table.c.position).where(table.c.source == source))


def save_position(connection: Connection, source: str, position: str) -> None:
    """Save the position from which to continue reading `source`."""
    table = models.ingest_positions
    connection.execute(delete(table).where(table.c.source == source))
    connection.execute(insert(table).values(source=source, position=position))


def forget_position(connection: Connection, source: str) -> None:
    """Have reading of `source` begin at its start again."""
    table = models.ingest_positions
    connection.execute(delete(table).where(table.c.source == source))


def note_unannounced(connection: Connection, run_id: str) -> None:
    """Save that a run is new, so that its earlier journal entries are ingested even after a crash."""
    save_position(connection, _UNANNOUNCED + run_id, "")


def unannounced_runs(database: Database) -> frozenset[str]:
    """Return the runs whose journal entries were not ingested yet."""
    table = models.ingest_positions
    with database.read() as connection:
        sources = connection.scalars(select(table.c.source).where(table.c.source.startswith(_UNANNOUNCED)))
        return frozenset(source.removeprefix(_UNANNOUNCED) for source in sources)


def forget_unannounced(connection: Connection, run_ids: Iterable[str]) -> None:
    """Save that the journal entries of these runs are ingested."""
    table = models.ingest_positions
    for run_id in run_ids:
        connection.execute(delete(table).where(table.c.source == _UNANNOUNCED + run_id))
