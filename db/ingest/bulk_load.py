"""Filling tables with millions of rows without checking each one.

PostgreSQL checks keys and references at once afterwards; SQLite leaves references unchecked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, Table, text

from db.connections.session import Database

_SQLITE_SETTINGS = (
    "foreign_keys = OFF",
    "synchronous = OFF",
    "cache_size = -500000",
    "temp_store = MEMORY",
)
_CONSTRAINTS = text(
    "SELECT conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
    " WHERE conrelid = CAST(:name AS regclass) AND contype IN ('f', 'p') ORDER BY contype"
)
_INDEXES = text(
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = :name"
    " AND indexname NOT IN (SELECT conname FROM pg_constraint WHERE conrelid = CAST(:name AS regclass))"
)


class BulkLoad:
    """One connection for loading; its temporary tables last as long as it does."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.connection = connection

    @contextmanager
    def filling(self, tables: Sequence[Table]) -> Iterator[Connection]:
        """Give the connection in one transaction; on PostgreSQL the tables' keys and indexes are made at its end."""
        with self.connection.begin():
            recreate = (
                [] if self.is_sqlite else [_drop_keys_and_indexes(self.connection, table.name) for table in tables]
            )
            yield self.connection
            for statements in recreate:
                for statement in statements:
                    self.connection.exec_driver_sql(statement)


@contextmanager
def bulk_load(database: Database) -> Iterator[BulkLoad]:
    """Give a connection set up for loading; a crash of the machine during the load may damage a SQLite file."""
    engine = database.engine.execution_options(is_write=True)
    with engine.connect() as connection:
        try:
            if database.is_sqlite:
                raw = connection.connection.driver_connection
                assert raw is not None
                for setting in _SQLITE_SETTINGS:
                    raw.execute(f"PRAGMA {setting}")
            else:
                connection.exec_driver_sql("SET maintenance_work_mem = '1GB'")
                connection.commit()
            yield BulkLoad(engine, connection)
        finally:
            # The next user of the connection must not get its settings and temporary tables.
            connection.invalidate()


def _drop_keys_and_indexes(connection: Connection, name: str) -> list[str]:
    """Drop the constraints and indexes of a table and return the statements that make them again."""
    constraints = connection.execute(_CONSTRAINTS, {"name": name}).all()
    indexes = connection.execute(_INDEXES, {"name": name}).all()
    for constraint in constraints:
        connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT {constraint.conname}")
    for index in indexes:
        connection.exec_driver_sql(f"DROP INDEX {index.indexname}")
    recreate = [f"ALTER TABLE {name} ADD CONSTRAINT {row.conname} {row.definition}" for row in reversed(constraints)]
    return recreate + [index.indexdef for index in indexes]
