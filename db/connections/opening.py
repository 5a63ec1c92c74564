"""Opening the database that a URL names.

A new database gets the tables of `exgrpo.db.tables.models` at once. The database is only an index: one whose tables,
columns or indexes differ from this program's is dropped and read again from the run directories and the journal.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, insert, inspect, make_url, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, NoSuchTableError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from exgrpo.db.connections.session import (
    DamagedDatabaseError,
    Database,
    DatabaseError,
    check_encoding,
    default_url,
    list_sqlite_tables,
    make_engine,
    parse_url,
    url_without_password,
)
from exgrpo.db.connections.sqlite_files import refusal
from exgrpo.db.tables import models
from exgrpo_core.errors import first_line

_CREATION_LOCK = 7_266_302_411
"""Key of PostgreSQL's advisory lock: of several programs that start at once, one creates the tables."""
_SEARCH_TABLE = "trajectory_search"
_SCHEMA_SOURCE = "schema"
"""The source in `ingest_positions` whose position is the fingerprint of the tables' definitions."""
_OURS = frozenset({"ingest_positions", "ingested_events", "buffer_changes"})
"""Tables that no other program has."""

# By the name of what it makes, what SQLAlchemy has no words for. PostgreSQL's parser would read words of its own into
# numbers, paths and hyphens, and takes at most 1 MB.
_OF_ONE_DIALECT = {
    "sqlite": {
        _SEARCH_TABLE: (
            "CREATE VIRTUAL TABLE trajectory_search USING fts5(text, content='trajectory_texts',"
            " content_rowid='trajectory_key', tokenize='unicode61 remove_diacritics 0')"
        ),
        "trajectory_texts_inserted": (
            "CREATE TRIGGER trajectory_texts_inserted AFTER INSERT ON trajectory_texts BEGIN"
            " INSERT INTO trajectory_search(rowid, text)"
            " VALUES (new.trajectory_key, new.text || coalesce(' ' || new.role_words, '')); END"
        ),
        "trajectory_texts_deleted": (
            "CREATE TRIGGER trajectory_texts_deleted AFTER DELETE ON trajectory_texts BEGIN"
            " INSERT INTO trajectory_search(trajectory_search, rowid, text)"
            " VALUES ('delete', old.trajectory_key, old.text || coalesce(' ' || old.role_words, '')); END"
        ),
    },
    "postgresql": {
        "trajectory_texts.search": (
            "ALTER TABLE trajectory_texts ADD COLUMN search tsvector GENERATED ALWAYS AS"
            r" (to_tsvector('simple', regexp_replace(left(text, 200000), '[!-/:-@\[-`{-~]+', ' ', 'g')"
            " || coalesce(' ' || role_words, ''))) STORED"
        ),
        "trajectory_texts_by_word": ("CREATE INDEX trajectory_texts_by_word ON trajectory_texts USING gin (search)"),
        "runs_by_kind": (
            "CREATE INDEX runs_by_kind ON runs"
            " ((coalesce(CAST((spec ->> 'kind') AS VARCHAR), 'train')), created_at DESC, run_id DESC)"
        ),
    },
}
_NAMES_OF = {
    "sqlite": (
        "SELECT name FROM sqlite_schema UNION ALL SELECT tables.name || '.' || columns.name"
        " FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
    ),
    "postgresql": (
        "WITH relations AS (SELECT oid, relname FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace ="
        " (SELECT oid FROM pg_namespace WHERE nspname = current_schema()))"
        " SELECT relname FROM relations UNION ALL SELECT relname || '.' || attname FROM relations"
        " JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped"
    ),
}
"""Queries for the names of all tables, columns (`table.column`), indexes and triggers."""


class OtherSchemaError(DatabaseError):
    """The tables are not those of this version of the program."""


class ForeignDatabaseError(DatabaseError):
    """The database has tables of another program, so this one neither adds its tables nor drops any."""


@cache
def _fingerprint() -> str:
    """Return a digest of the definitions of all tables, columns and indexes, of both kinds of databases."""
    parts = [statement for of_dialect in _OF_ONE_DIALECT.values() for statement in of_dialect.values()]
    dialects = [make_url(url).get_dialect()() for url in ("sqlite://", "postgresql+psycopg://")]
    for table in models.metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        makers: list[CreateTable | CreateIndex] = [CreateTable(table), *map(CreateIndex, indexes)]
        parts += [str(maker.compile(dialect=dialect)) for maker in makers for dialect in dialects]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _names_of(dialect: str) -> Iterator[str]:
    for table in models.metadata.sorted_tables:
        yield table.name
        yield from (f"{table.name}.{column.name}" for column in table.columns)
        yield from (str(index.name) for index in table.indexes)
    yield from _OF_ONE_DIALECT[dialect]


def find_difference(database: Database) -> str | None:
    """Return how the schema differs from this program's, in a few words; None where it does not, "" without tables."""
    with database.read() as connection:
        return _find_difference(connection)


def _find_difference(connection: Connection) -> str | None:
    dialect, positions = connection.dialect.name, models.ingest_positions
    found = set(connection.exec_driver_sql(_NAMES_OF[dialect]).scalars())
    if not found:
        return ""
    for name in _names_of(dialect):
        if name not in found:
            return f"{name} is missing"
    known = select(positions.c.position).where(positions.c.source == _SCHEMA_SOURCE)
    return None if connection.scalar(known) == _fingerprint() else "its tables are another version's"


def reset(database: Database, *, is_forced: bool = True) -> None:
    """Drop the program's tables, whatever their schema, and create them again, empty.

    The caller reads the run directories and the journal again afterwards. Unless it `is_forced`, tables of this
    version's schema stay, which another program may just have made.

    Raises:
        ForeignDatabaseError: The tables are another program's.
        DamagedDatabaseError: They cannot be made again in this file, as it has a view in the place of one.
        DatabaseError: It cannot be written.
    """

    def work(connection: Connection) -> None:
        _lock(connection)
        if not is_forced and _find_difference(connection) is None:
            return
        _drop_tables(connection)
        _create_tables(connection)
        if difference := _find_difference(connection):  # a view of that name stays
            raise NoSuchTableError(difference)

    try:
        database.write(work)
    except SQLAlchemyError as error:
        code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, NoSuchTableError) or code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}:
            raise DamagedDatabaseError(f"{database.engine.url.database}: {first_line(error)}") from error
        if isinstance(error, DBAPIError):
            raise _cannot_be_opened(database.engine.url, error) from None
        raise


def _prepare(database: Database) -> None:
    """Create the tables of a new database; an up-to-date one is left alone.

    Raises:
        OtherSchemaError: The schema differs from this program's.
    """
    if (difference := find_difference(database)) == "":
        database.write(_create_if_empty)
        difference = find_difference(database)
    if difference is not None:
        raise OtherSchemaError(
            f"{url_without_password(database.engine.url)}: {difference}; it is built again from the run directories "
            "when the workbench of this version starts, or by `exgrpo db rebuild`."
        )


def _create_if_empty(connection: Connection) -> None:
    _lock(connection)
    if _find_difference(connection) == "":
        _create_tables(connection)


def _lock(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})


def _create_tables(connection: Connection) -> None:
    models.metadata.create_all(connection)
    for statement in _OF_ONE_DIALECT[connection.dialect.name].values():
        connection.exec_driver_sql(statement)
    connection.execute(insert(models.ingest_positions).values(source=_SCHEMA_SOURCE, position=_fingerprint()))


def _check_owner(names: Iterable[str], url: URL, or_else: str = "") -> None:
    if (others := [*names]) and not _OURS & set(others):
        raise ForeignDatabaseError(
            f"{url_without_password(url)}: has tables of another program ({', '.join(others[:3])}); "
            f"name a database that only the workbench uses with EXGRPO_DATABASE_URL{or_else}."
        )


def _drop_tables(connection: Connection) -> None:
    """Drop the tables of this program: those of its names, and those that refer to them, as earlier versions' do."""
    inspector = inspect(connection)
    _check_owner(inspector.get_table_names(), connection.engine.url)
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        # A virtual table has hidden tables, which are dropped with it only.
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_SEARCH_TABLE}")
        inspector.clear_cache()
    ours = models.metadata.tables
    names = [
        name
        for name in inspector.get_table_names()
        if name in ours or any(key["referred_table"] in ours for key in inspector.get_foreign_keys(name))
    ]
    for name in sorted(names, key=lambda name: name == models.runs.name):  # all others refer to it
        connection.exec_driver_sql(f'DROP TABLE "{name}"{"" if is_sqlite else " CASCADE"}')


def _cannot_be_opened(url: URL, error: DBAPIError) -> DatabaseError:
    reason = str(error.orig).strip().splitlines()[0]
    return DatabaseError(f"{url_without_password(url)}: the database cannot be opened or written ({reason}).")


def open_database(url: str | None, runs_root: Path, *, checks_schema: bool = True) -> Database:
    """Open the database at `url`, by default the SQLite file of `runs_root`; a new one gets its tables.

    With `checks_schema` the tables must be this version's; without it, nothing is created.

    Raises:
        OtherSchemaError: The schema differs from this program's.
        DatabaseError: It cannot be reached, its tables are another program's, it is not in UTF-8, or it is a SQLite
            file on a network file system.
    """
    database_url = parse_url(url) if url else default_url(runs_root)
    path = database_url.database if database_url.get_backend_name() == "sqlite" else None
    if path and (sentence := refusal(Path(path))):
        raise DatabaseError(sentence)
    if path and Path(path).exists() and not Path(path).is_file():
        raise DamagedDatabaseError(
            f"{path}: expected the database's file, found a folder or the like. `exgrpo db rebuild` moves it aside and "
            "makes the file from the run directories."
        )
    if path:
        # Before the first connection that writes: SQLite's settings would stay in another program's file.
        or_else = "" if url else ", or let `exgrpo db rebuild` move the SQLite file aside"
        _check_owner(list_sqlite_tables(Path(path)), database_url, or_else)
    database = Database(make_engine(database_url))
    try:
        check_encoding(database)
        with database.read() as connection:
            _check_owner(inspect(connection).get_table_names(), database_url)
        if checks_schema:
            _prepare(database)
    except DBAPIError as error:
        database.close()
        raise _cannot_be_opened(database_url, error) from None
    except BaseException:
        database.close()
        raise
    return database
