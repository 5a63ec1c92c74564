"""Opening the database: SQLite next to the runs by default, PostgreSQL by URL; writing with bounded retries."""

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine, Executable, Row, create_engine, event, make_url
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from exgrpo.db import SQLITE_FILE
from exgrpo.db.connections.sqlite_files import BUSY_SECONDS, execute_unlocked, is_log_long, shorten_log
from exgrpo.db.tables.column_types import dump_json, sqlite_natural_text
from exgrpo_core.errors import UserError

MAX_TRIES = 8
_FIRST_WAIT_SECONDS = 0.02
_RETRYABLE_STATES = {"40001", "40P01", "55P03"}
"""PostgreSQL: serialization failure, deadlock, lock not available."""
_SECRET_PARAMETERS = ("password", "sslpassword", "passfile", "service")
"""Of PostgreSQL's connection strings."""

Result = TypeVar("Result")
_REFUSALS = (DataError, IntegrityError, ProgrammingError)
"""The database is available but rejects a value."""


class DatabaseError(UserError, RuntimeError):
    """The database cannot be opened or used; one sentence why and what to do."""


class DamagedDatabaseError(DatabaseError):
    """The SQLite file is damaged. It is only an index, so a new one is built from the run directories."""


UNAVAILABLE_ERRORS = (DatabaseError, DBAPIError)
"""The errors of reading from an unavailable database: it cannot be opened, or a connection or statement failed."""


def concerns_database(error: Exception) -> bool:
    """Return whether an error is about the database as a whole, not about one value that was to be written."""
    if isinstance(error, DBAPIError):
        # PostgreSQL's own ProgrammingErrors are about a statement: no right to write, no such table.
        is_of_statement = isinstance(error, ProgrammingError) and getattr(error.orig, "sqlstate", None) is not None
        return is_of_statement or not isinstance(error, _REFUSALS)
    return isinstance(error, DatabaseError | SQLAlchemyError) and not isinstance(error, StatementError)


def url_without_password(url: URL) -> str:
    """Return the URL as text, without the password, wherever in the URL it is."""
    return url.difference_update_query(_SECRET_PARAMETERS).render_as_string(hide_password=True)


@dataclass(frozen=True)
class Database:
    """An open database. Any thread may use it; each block is one transaction on a separate connection."""

    engine: Engine

    @property
    def url(self) -> str:
        """Its address, password included: for another process, not for people."""
        return self.engine.url.render_as_string(hide_password=False)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite; else PostgreSQL."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection that changes nothing.

        On SQLite all of the block sees one state of the database; on PostgreSQL each statement sees the newest, with or
        without a transaction around them, whose begin and end would cost two more round trips to the server.
        """
        with self.engine.connect() as connection:
            if not self.is_sqlite:
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    def rows(self, query: Executable) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows of one query."""
        with self.read() as connection:
            return connection.execute(query).all()

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in one transaction and return its result; up to `MAX_TRIES` times while other writers block it.

        Raises:
            DatabaseError: Other programs kept the database locked.
        """
        for attempt in range(MAX_TRIES):
            try:
                with self.engine.execution_options(is_write=True).begin() as connection:
                    result = work(connection)
                break
            except DBAPIError as error:
                if not _is_retryable(error):
                    raise
                time.sleep(_FIRST_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1.0))
        else:
            url = url_without_password(self.engine.url)
            raise DatabaseError(f"{url}: other programs kept the database busy for too long; try again.")
        self._tidy()
        return result

    def _tidy(self) -> None:
        """Empty a log that grew long; written data is safe even if that fails."""
        path = self.engine.url.database
        if self.is_sqlite and path is not None and is_log_long(Path(path)):
            with (
                contextlib.suppress(DBAPIError, sqlite3.Error),
                closing(self.engine.raw_connection()) as connection,
            ):
                shorten_log(cast("sqlite3.Connection", connection.driver_connection))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def check_pages(database: Database) -> None:
    """Read all pages of a SQLite database; PostgreSQL checks its own.

    Raises:
        DamagedDatabaseError: Some are damaged.
    """
    if database.is_sqlite:
        with database.read() as connection:
            verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if verdict != "ok":
            raise DamagedDatabaseError(f"{database.engine.url.database}: the database is damaged ({verdict}).")


def list_sqlite_tables(path: Path) -> list[str]:
    """Return the tables of SQLite's file without a change to it, none of a file that cannot be read."""
    try:
        with closing(sqlite3.connect(_read_only(path), uri=True, timeout=BUSY_SECONDS)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    except sqlite3.Error:
        return []
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _read_only(path: Path) -> str:
    return f"file:{path.resolve().as_posix().replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro"


def sqlite_path(url: str | None, runs_root: Path) -> Path | None:
    """Return the file of the database at `url`, even if it does not exist; None for PostgreSQL.

    Raises:
        DatabaseError: `url` names no kind of database that this program knows.
    """
    if not url:
        return runs_root / SQLITE_FILE
    parsed = parse_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def file_inode(url: str | None, runs_root: Path) -> int | None:
    """Return the inode of SQLite's file, None without one: an open file that was replaced has nothing new."""
    path = sqlite_path(url, runs_root)
    try:
        return None if path is None else path.stat().st_ino
    except OSError:
        return None


def default_url(runs_root: Path) -> URL:
    """Return the URL of the SQLite file of a runs root, and create its folder."""
    path = Path(runs_root).resolve() / SQLITE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    return URL.create("sqlite", database=str(path))


def parse_url(url: str) -> URL:
    """Return a URL with the driver that this program uses.

    Raises:
        DatabaseError: It names no kind of database that this program knows.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
            parsed.get_dialect()().create_connect_args(parsed)
            return parsed
    except (ArgumentError, ValueError):  # a port that is no number
        raise DatabaseError("database URL: expected sqlite:///FILE or postgresql://USER@HOST/NAME.") from None
    if parsed.get_backend_name() == "sqlite" and parsed.database and not parsed.query:
        return parsed.set(drivername="sqlite")
    raise DatabaseError(
        f"database URL {url_without_password(parsed)}: expected sqlite:///FILE or postgresql://USER@HOST/NAME."
    )


def make_engine(url: URL) -> Engine:
    """Return the engine of a database; nothing is connected yet."""
    if url.get_backend_name() != "sqlite":
        return _make_postgresql_engine(url)
    waiting = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    engine = create_engine(url, connect_args=waiting, json_serializer=dump_json)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    event.listen(engine, "handle_error", _name_damage)
    return engine


def _name_damage(context: ExceptionContext) -> None:
    """Raise DamagedDatabaseError in place of SQLite's own errors about a file that is cut, overwritten or no database.

    SQLAlchemy calls this for every error of a connection or statement.
    """
    error = context.original_exception
    # The low byte of an extended code is the kind of error.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        file = context.engine.url.database if context.engine is not None else "the database"
        raise DamagedDatabaseError(
            f"{file}: the database is damaged ({error}). `exgrpo db rebuild` builds it again from the run directories."
        ) from error


def _make_postgresql_engine(url: URL) -> Engine:
    # Connections to a machine that vanished end within seconds.
    limits = {"connect_timeout": 2, "tcp_user_timeout": 5000, "keepalives_idle": 3, "keepalives_interval": 1,
              "keepalives_count": 3}  # fmt: skip
    # A pooler such as PgBouncer gives each transaction another connection, without what was prepared on the last.
    settings = {"client_encoding": "utf8", "prepare_threshold": None, **limits}
    engine = create_engine(url, pool_pre_ping=True, json_serializer=dump_json, connect_args=settings)
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's
    # To compile a query takes up to a second, more than any query of a page. PgBouncer refuses it as an option.
    connection.execute("SET jit = off")
    connection.commit()


def check_encoding(database: Database) -> None:
    """Check that the database can hold every text; SQLite's can.

    Raises:
        DatabaseError: It is a PostgreSQL database of another encoding than UTF-8.
    """
    if database.is_sqlite:
        return
    with database.read() as connection:
        server: Any = connection.connection.driver_connection
        info = server.info
    if (encoding := info.parameter_status("server_encoding")) != "UTF8":
        raise DatabaseError(
            f"{url_without_password(database.engine.url)}: the database has the encoding {encoding}, in which not "
            f"every text can be stored; make another with `createdb -h {info.host} -p {info.port} -U {info.user} "
            f"-E UTF8 -T template0 -l C.UTF-8 {info.dbname}_utf8`, and name it instead."
        )


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # Python's sqlite3 would start transactions by itself, and deferred ones: they fail when two upgrade to writing.
    connection.isolation_level = None
    execute_unlocked(connection, "PRAGMA journal_mode = WAL")
    for setting in ("synchronous = NORMAL", "foreign_keys = ON", "cache_size = -32000"):
        connection.execute(f"PRAGMA {setting}")
    connection.create_function("natural_text", 1, sqlite_natural_text, deterministic=True)


def _begin_sqlite(connection: Connection) -> None:
    is_write = connection.get_execution_options().get("is_write", False)
    if is_write:
        try:
            execute_unlocked(cast("sqlite3.Connection", connection.connection.driver_connection), "BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            # SQLAlchemy wraps only errors of statements that it executes itself.
            raise OperationalError("BEGIN IMMEDIATE", None, error) from error
    else:
        connection.exec_driver_sql("BEGIN")


def _is_retryable(error: DBAPIError) -> bool:
    original: Any = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return any(word in str(original) for word in ("locked", "busy"))
    return getattr(original, "sqlstate", None) in _RETRYABLE_STATES
