"""How far each source of files was read: saved in the same transaction as what was read."""

from sqlalchemy import Connection, delete, insert, select

from db import models
from db.session import Database


def read_position(database: Database, source: str) -> str | None:
    """Return where reading of `source` goes on, None at its start."""
    table = models.ingest_positions
    with database.read() as connection:
        return connection.scalar(select(table.c.position).where(table.c.source == source))


def save_position(connection: Connection, source: str, position: str) -> None:
    """Keep where reading of `source` goes on."""
    table = models.ingest_positions
    connection.execute(delete(table).where(table.c.source == source))
    connection.execute(insert(table).values(source=source, position=position))
