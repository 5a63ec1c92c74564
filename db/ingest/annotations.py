"""User annotations of runs: tags, notes, archiving. The journal is their source; each change may come twice."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, delete, update

from db.connections.session import Database
from db.ingest.events import run_source
from db.ingest.positions import forget_position, forget_unannounced, save_position
from db.ingest.upsert import insert_new
from db.tables import models
from db.tables.json_text import storable_text
from db.tables.run_lookup import require_run_key

JOURNAL_SOURCE = "journal"


def add_tag(database: Database, run_id: str, tag: str) -> None:
    """Add a tag to a run."""

    def work(connection: Connection) -> None:
        row = {"run_key": require_run_key(connection, run_id), "tag": storable_text(tag)}
        insert_new(connection, models.tags, [row])

    database.write(work)


def remove_tag(database: Database, run_id: str, tag: str) -> None:
    """Remove a tag from a run."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        is_it = (models.tags.c.run_key == run_key, models.tags.c.tag == storable_text(tag))
        connection.execute(delete(models.tags).where(*is_it))

    database.write(work)


def add_note(database: Database, run_id: str, at: datetime, text: str) -> None:
    """Save a user's note on a run with its time."""

    def work(connection: Connection) -> None:
        row = {"run_key": require_run_key(connection, run_id), "at": at, "text": storable_text(text)}
        insert_new(connection, models.notes, [row])

    database.write(work)


def set_archived(database: Database, run_id: str, is_archived: bool) -> None:
    """Hide a run from the list, or show it again."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        connection.execute(update(models.runs).where(models.runs.c.run_key == run_key).values(is_archived=is_archived))

    database.write(work)


def set_name(database: Database, run_id: str, name: str) -> None:
    """Give a run another name."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        values = {"name": storable_text(name)}
        connection.execute(update(models.runs).where(models.runs.c.run_key == run_key).values(values))

    database.write(work)


def forget_run(database: Database, run_id: str) -> None:
    """Remove everything that the database knows of a run whose folder is gone; none of this id changes nothing."""

    def work(connection: Connection) -> None:
        connection.execute(delete(models.runs).where(models.runs.c.run_id == run_id))
        forget_position(connection, run_source(run_id))
        forget_unannounced(connection, [run_id])

    database.write(work)


def save_journal_position(database: Database, position: str, announced: Iterable[str] = ()) -> None:
    """Keep how far the journal was read, and of which new runs all of it is in."""

    def work(connection: Connection) -> None:
        save_position(connection, JOURNAL_SOURCE, position)
        forget_unannounced(connection, announced)

    database.write(work)
