"""Opening the database that a URL names, with its schema brought up to date."""

from pathlib import Path

from sqlalchemy.exc import DBAPIError

from db.connections.schema import upgrade
from db.connections.session import Database, DatabaseError, default_url, make_engine, parse_url, url_without_password
from db.connections.sqlite_files import refusal


def open_database(url: str | None, runs_root: Path, *, upgrades: bool = True) -> Database:
    """Open the database at `url`, by default the SQLite file of `runs_root`, and bring its schema up to date.

    Raises:
        DatabaseError: It cannot be reached, its schema is newer than this program, or it is a SQLite file on a network
            file system.
    """
    database_url = parse_url(url) if url else default_url(runs_root)
    path = database_url.database if database_url.get_backend_name() == "sqlite" else None
    if path and (sentence := refusal(Path(path))):
        raise DatabaseError(sentence)
    database = Database(make_engine(database_url))
    try:
        if upgrades:
            upgrade(database)
        else:
            with database.read() as connection:
                connection.exec_driver_sql("SELECT 1")
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
