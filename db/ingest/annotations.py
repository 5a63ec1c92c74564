"""User annotations of runs: tags, notes, archiving. The journal is their source; each change may come twice.

Each raises UnknownRunError for a run that is not there.
"""

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
_Values = dict[str, Any]


def add_tag(database: Database, run_id: str, tag: str) -> None:
    """Add a tag to a run."""
    _add(database, models.tags, run_id, {"tag": storable_text(tag)})


def remove_tag(database: Database, run_id: str, tag: str) -> None:
    """Remove a tag from a run."""
    _remove(database, models.tags, run_id, {"tag": storable_text(tag)})


def add_note(database: Database, run_id: str, at: datetime, text: str) -> None:
    """Save a user's note on a run with its time."""
    _add(database, models.notes, run_id, {"at": at}, {"text": storable_text(text)})


def set_archived(database: Database, run_id: str, is_archived: bool) -> None:
    """Hide a run from the list, or show it again."""
    _change_run(database, run_id, {"is_archived": is_archived})


def set_name(database: Database, run_id: str, name: str) -> None:
    """Give a run another name."""
    _change_run(database, run_id, {"name": storable_text(name)})


def forget_run(database: Database, run_id: str) -> None:
    """Remove everything that the database knows of a run whose folder is gone; none of this id changes nothing."""

    def work(connection: Connection) -> None:
        positions = models.ingest_positions
        connection.execute(delete(models.runs).where(models.runs.c.run_id == run_id))
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
    _add(database, models.saved_cases, case.run_id, _case_key(case_set, case), {"at": at})


def remove_case(database: Database, case_set: str, case: SavedCase) -> None:
    """Remove a case from a set."""
    _remove(database, models.saved_cases, case.run_id, _case_key(case_set, case))


def set_mark(database: Database, mark: MarkedTrajectory, at: datetime) -> None:
    """Mark a trajectory; the comment replaces an earlier one of the same mark."""
    values = {"comment": storable_text(mark.comment), "at": at}
    _add(database, models.trajectory_marks, mark.run_id, _mark_key(mark), values, replaces=True)


def remove_mark(database: Database, mark: MarkedTrajectory) -> None:
    """Remove a mark from a trajectory."""
    _remove(database, models.trajectory_marks, mark.run_id, _mark_key(mark))


def set_verdict(
    database: Database, run_id: str, attempt: int, trajectory_id: int, is_valid: bool, at: datetime
) -> None:
    """Save a user's verdict on a trajectory; it replaces an earlier one."""
    key = {"attempt": attempt, "trajectory_id": trajectory_id}
    _add(database, models.verdict_overrides, run_id, key, {"is_valid": is_valid, "at": at}, replaces=True)


def clear_verdict(database: Database, run_id: str, attempt: int, trajectory_id: int) -> None:
    """Remove a user's verdict on a trajectory."""
    _remove(database, models.verdict_overrides, run_id, {"attempt": attempt, "trajectory_id": trajectory_id})


def _case_key(case_set: str, case: SavedCase) -> _Values:
    names = ("attempt", "low_trajectory_id", "high_trajectory_id")
    return {"case_set": storable_text(case_set)} | {name: getattr(case, name) for name in names}


def _mark_key(mark: MarkedTrajectory) -> _Values:
    return {"attempt": mark.attempt, "trajectory_id": mark.trajectory_id, "mark": storable_text(mark.mark)}


def _add(
    database: Database,
    table: Table,
    run_id: str,
    key: _Values,
    values: _Values | None = None,
    *,
    replaces: bool = False,
) -> None:
    """Add a run's row; one that is there stays as it is, unless it is replaced."""

    def work(connection: Connection) -> None:
        row = {"run_key": require_run_key(connection, run_id)} | key
        if replaces:
            _delete(connection, table, row)
        insert_new(connection, table, [row | (values or {})])

    database.write(work)


def _remove(database: Database, table: Table, run_id: str, key: _Values) -> None:
    database.write(
        lambda connection: _delete(connection, table, {"run_key": require_run_key(connection, run_id)} | key)
    )


def _delete(connection: Connection, table: Table, key: _Values) -> None:
    connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))


def _change_run(database: Database, run_id: str, values: _Values) -> None:
    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        connection.execute(update(models.runs).where(models.runs.c.run_key == run_key).values(values))

    database.write(work)
