"""Facts about the database: kind, URL, size and schema."""

from dataclasses import dataclass

from sqlalchemy import text

from db.connections.schema import current_revision, newest_revision
from db.connections.session import Database, url_without_password
from db.queries.runs import count_runs


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """One database; `url` contains no password."""

    kind: str
    url: str
    num_bytes: int
    schema: str
    newest_schema: str
    num_runs: int


def database_facts(database: Database) -> DatabaseFacts:
    """Return the facts about a database."""
    size = (
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        if database.is_sqlite
        else "SELECT pg_database_size(current_database())"
    )
    with database.read() as connection:
        num_bytes = int(connection.scalar(text(size)) or 0)
    return DatabaseFacts(
        kind="SQLite" if database.is_sqlite else "PostgreSQL",
        url=url_without_password(database.engine.url),
        num_bytes=num_bytes,
        schema=current_revision(database) or "none",
        newest_schema=newest_revision(),
        num_runs=sum(count_runs(database).values()),
    )
