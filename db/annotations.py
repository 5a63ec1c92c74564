"""What users said of runs: tags, notes, archiving. The journal is their truth; each change may come twice."""

from datetime import datetime

from sqlalchemy import Connection, delete, update

from db import models
from db.positions import save_position
from db.queries.run_lookup import require_run_key
from db.session import Database
from db.upsert import insert_new

JOURNAL_SOURCE = "journal"


def add_tag(database: Database, run_id: str, tag: str) -> None:
    """Give a run a tag."""

    def work(connection: Connection) -> None:
        insert_new(connection, models.tags, [{"run_key": require_run_key(connection, run_id), "tag": tag}])

    database.write(work)


def remove_tag(database: Database, run_id: str, tag: str) -> None:
    """Take a tag from a run."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        connection.execute(delete(models.tags).where(models.tags.c.run_key == run_key, models.tags.c.tag == tag))

    database.write(work)


def add_note(database: Database, run_id: str, at: datetime, text: str) -> None:
    """Keep what a user noted on a run at a moment."""

    def work(connection: Connection) -> None:
        row = {"run_key": require_run_key(connection, run_id), "at": at, "text": text.replace("\x00", "")}
        insert_new(connection, models.notes, [row])

    database.write(work)


def set_archived(database: Database, run_id: str, is_archived: bool) -> None:
    """Hide a run from the list, or show it again."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        connection.execute(update(models.runs).where(models.runs.c.run_key == run_key).values(is_archived=is_archived))

    database.write(work)


def save_journal_position(database: Database, position: str) -> None:
    """Keep how far the journal was read."""
    database.write(lambda connection: save_position(connection, JOURNAL_SOURCE, position))
