"""Opening the database that a URL names, with its schema brought up to date.

A new database gets the tables of `db.tables.models` at once. A revision in `db/migrations` brings the database of an
earlier release to the same schema; what no release wrote is built again from the run directories.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from db.connections.session import (
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
from db.connections.sqlite_files import refusal
from db.tables import models

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_UPGRADE_LOCK = 7_266_302_411
"""Key of PostgreSQL's advisory lock: of several programs that start at once, one upgrades."""
_SEARCH_TABLE = "trajectory_search"


# What SQLAlchemy has no words for. PostgreSQL's parser would read words of its own into numbers, paths and hyphens, and
# takes at most 1 MB. Packed facts hardly shrink, and unpacking them would take longer than reading them.
_OF_ONE_DIALECT = {
    "sqlite": (
        "CREATE VIRTUAL TABLE trajectory_search USING fts5(text, content='trajectory_texts',"
        " content_rowid='trajectory_key', tokenize='unicode61 remove_diacritics 0')",
        "CREATE TRIGGER trajectory_texts_inserted AFTER INSERT ON trajectory_texts BEGIN"
        " INSERT INTO trajectory_search(rowid, text)"
        " VALUES (new.trajectory_key, new.text || coalesce(' ' || new.role_words, '')); END",
        "CREATE TRIGGER trajectory_texts_deleted AFTER DELETE ON trajectory_texts BEGIN"
        " INSERT INTO trajectory_search(trajectory_search, rowid, text)"
        " VALUES ('delete', old.trajectory_key, old.text || coalesce(' ' || old.role_words, '')); END",
    ),
    "postgresql": (
        "ALTER TABLE trajectory_texts ADD COLUMN search tsvector GENERATED ALWAYS AS"
        r" (to_tsvector('simple', regexp_replace(left(text, 200000), '[!-/:-@\[-`{-~]+', ' ', 'g')"
        " || coalesce(' ' || role_words, ''))) STORED",
        "CREATE INDEX trajectory_texts_by_word ON trajectory_texts USING gin (search)",
        "CREATE INDEX runs_by_kind ON runs"
        " ((coalesce(CAST((spec ->> 'kind') AS VARCHAR), 'train')), created_at DESC, run_id DESC)",
        "ALTER TABLE trajectory_blocks ALTER COLUMN facts SET STORAGE EXTERNAL",
    ),
}


class UnknownSchemaError(DatabaseError):
    """The database was written by another version of this program."""


class ForeignDatabaseError(DatabaseError):
    """The database has tables of another program, so this one neither adds its tables nor drops any."""


@cache
def newest_revision() -> str:
    """Return the revision that this program works with."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def current_revision(database: Database) -> str | None:
    """Return the revision of the database, None while it is empty."""
    with database.read() as connection:
        return _read_revision(connection)


def is_known(revision: str) -> bool:
    """Return whether this program can bring a schema of this revision up to date."""
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def upgrade(database: Database) -> str:
    """Bring the schema to this program's revision and return it; an up-to-date schema is left alone.

    Raises:
        UnknownSchemaError: This program does not know the schema.
        ForeignDatabaseError: The tables are another program's.
    """
    if current_revision(database) != newest_revision():
        database.write(_upgrade)
    return newest_revision()


def reset(database: Database) -> None:
    """Drop every table, whatever its schema, and create them again, empty.

    The caller reads the run directories and the journal again afterwards.

    Raises:
        ForeignDatabaseError: The tables are another program's.
    """
    database.write(_drop_everything)
    upgrade(database)


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    revision = _read_revision(connection)
    _check_owner(inspect(connection).get_table_names(), connection.engine.url)
    if revision is not None and not is_known(revision):
        raise UnknownSchemaError(
            f"The database has schema {revision}, which this version does not know (its own is {newest_revision()}): "
            "use the version that wrote it, or build it again from the run directories with `exgrpo db rebuild`."
        )
    config = _config()
    config.attributes["connection"] = connection
    if revision is None:
        models.metadata.create_all(connection)
        for statement in _OF_ONE_DIALECT[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")


def _check_owner(names: Sequence[str], url: URL, or_else: str = "") -> None:
    if names and models.ingest_positions.name not in names:
        raise ForeignDatabaseError(
            f"{url_without_password(url)}: has tables of another program ({', '.join(names[:3])}); "
            f"name a database of the workbench alone with EXGRPO_DATABASE_URL{or_else}."
        )


def _drop_everything(connection: Connection) -> None:
    _check_owner(inspect(connection).get_table_names(), connection.engine.url)
    if connection.dialect.name == "sqlite":
        # A virtual table has hidden tables, which are dropped with it only.
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_SEARCH_TABLE}")
    existing = MetaData()
    existing.reflect(connection)
    existing.drop_all(connection)
    assert not inspect(connection).get_table_names()


def _read_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def open_database(url: str | None, runs_root: Path, *, upgrades: bool = True) -> Database:
    """Open the database at `url`, by default the SQLite file of `runs_root`, and bring its schema up to date.

    Raises:
        DatabaseError: It cannot be reached, its schema is newer than this program or another program's, it is not in
            UTF-8, or it is a SQLite file on a network file system.
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
        if upgrades:
            upgrade(database)
        else:
            with database.read() as connection:
                _check_owner(inspect(connection).get_table_names(), database_url)
    except DBAPIError as error:
        database.close()
        reason = str(error.orig).strip().splitlines()[0]
        raise DatabaseError(
            f"{url_without_password(database_url)}: the database cannot be opened ({reason})."
        ) from None
    except BaseException:
        database.close()
        raise
    return database
