"""User annotations of trajectories: marks, cases, verdicts. The journal is their source; changes may come twice."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, delete

from db.connections.session import Database
from db.ingest.upsert import insert_new
from db.rows.cases import SavedCase
from db.rows.marks import MarkedTrajectory
from db.tables import models
from db.tables.json_text import storable_text
from db.tables.run_lookup import require_run_key


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
