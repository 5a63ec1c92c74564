"""User annotations of runs: tags, notes, archiving. The journal is their source; each change may come twice."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, delete, update

from db.connections.session import Database
from db.ingest.events import forget_unannounced, run_source, save_position
from db.ingest.upsert import insert_new
from db.rows.chains_of_thought import SavedCase
from db.rows.trajectories import MarkedTrajectory
from db.tables import models
from db.tables.column_types import storable_text
from db.tables.shared_reads import require_run_key

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
        positions = models.ingest_positions
        connection.execute(delete(positions).where(positions.c.source == run_source(run_id)))
        forget_unannounced(connection, [run_id])

    database.write(work)


def save_journal_position(database: Database, position: str, announced: Iterable[str] = ()) -> None:
    """Keep how far the journal was read, and of which new runs all of it is in."""

    def work(connection: Connection) -> None:
        save_position(connection, JOURNAL_SOURCE, position)
        forget_unannounced(connection, announced)

    database.write(work)


def save_case(database: Database, case_set: str, case: SavedCase, at: datetime) -> None:
    """Add a case to a set; nothing changes if it is in the set already."""

    def work(connection: Connection) -> None:
        row = _case_key(connection, case_set, case)
        insert_new(connection, models.saved_cases, [row | {"at": at}])

    database.write(work)


def remove_case(database: Database, case_set: str, case: SavedCase) -> None:
    """Remove a case from a set."""
    database.write(lambda connection: _delete(connection, models.saved_cases, _case_key(connection, case_set, case)))


def set_mark(database: Database, mark: MarkedTrajectory, at: datetime) -> None:
    """Mark a trajectory; the comment replaces an earlier one of the same mark."""

    def work(connection: Connection) -> None:
        key = _mark_key(connection, mark)
        _delete(connection, models.trajectory_marks, key)
        row = {"comment": storable_text(mark.comment), "at": at}
        insert_new(connection, models.trajectory_marks, [key | row])

    database.write(work)


def remove_mark(database: Database, mark: MarkedTrajectory) -> None:
    """Remove a mark from a trajectory."""
    database.write(lambda connection: _delete(connection, models.trajectory_marks, _mark_key(connection, mark)))


def set_verdict(
    database: Database, run_id: str, attempt: int, trajectory_id: int, is_valid: bool, at: datetime
) -> None:
    """Save a user's verdict on a trajectory; it replaces an earlier one."""

    def work(connection: Connection) -> None:
        key = _verdict_key(connection, run_id, attempt, trajectory_id)
        _delete(connection, models.verdict_overrides, key)
        insert_new(connection, models.verdict_overrides, [key | {"is_valid": is_valid, "at": at}])

    database.write(work)


def clear_verdict(database: Database, run_id: str, attempt: int, trajectory_id: int) -> None:
    """Remove a user's verdict on a trajectory."""
    database.write(
        lambda connection: _delete(
            connection, models.verdict_overrides, _verdict_key(connection, run_id, attempt, trajectory_id)
        )
    )


def _case_key(connection: Connection, case_set: str, case: SavedCase) -> dict[str, Any]:
    return {
        "run_key": require_run_key(connection, case.run_id),
        "case_set": storable_text(case_set),
        "attempt": case.attempt,
        "low_trajectory_id": case.low_trajectory_id,
        "high_trajectory_id": case.high_trajectory_id,
    }


def _verdict_key(connection: Connection, run_id: str, attempt: int, trajectory_id: int) -> dict[str, Any]:
    return {"run_key": require_run_key(connection, run_id), "attempt": attempt, "trajectory_id": trajectory_id}


def _mark_key(connection: Connection, mark: MarkedTrajectory) -> dict[str, Any]:
    key = _verdict_key(connection, mark.run_id, mark.attempt, mark.trajectory_id)
    return key | {"mark": storable_text(mark.mark)}


def _delete(connection: Connection, table: Table, key: dict[str, Any]) -> None:
    connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))
