"""The schema's revision: upgrading it, refusing a newer one, dropping everything."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, inspect, text

from db.connections.session import Database, DatabaseError

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_UPGRADE_LOCK = 7_266_302_411
"""Key of PostgreSQL's advisory lock: of several programs that start at once, one upgrades."""
_SEARCH_TABLE = "trajectory_search"


class NewerSchemaError(DatabaseError):
    """The database was written by a newer version of this program."""


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
        NewerSchemaError: The schema is newer than this program knows.
    """
    if current_revision(database) != newest_revision():
        database.write(_upgrade)
    return newest_revision()


def reset(database: Database) -> None:
    """Drop every table, whatever its schema, and create them again, empty.

    The caller reads the run directories and the journal again afterwards.
    """
    database.write(_drop_everything)
    upgrade(database)


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    revision = _read_revision(connection)
    if revision is not None and not is_known(revision):
        raise NewerSchemaError(
            f"The database has schema {revision}, newer than {newest_revision()} which this version knows: install "
            "the newer version, or rebuild the database with `exgrpo db rebuild`."
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _drop_everything(connection: Connection) -> None:
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
