"""What users said of trajectories: saved cases and verdicts. The journal is their truth; each change may come twice."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete

from db import models
from db.case_rows import SavedCase
from db.queries.run_lookup import require_run_key
from db.session import Database
from db.upsert import insert_new


def save_case(database: Database, case_set: str, case: SavedCase, at: datetime) -> None:
    """Put a case into a set; where it is there already it stays as it is."""

    def work(connection: Connection) -> None:
        row = _case_key(connection, case_set, case)
        insert_new(connection, models.saved_cases, [row | {"at": at}])

    database.write(work)


def remove_case(database: Database, case_set: str, case: SavedCase) -> None:
    """Take a case out of a set."""
    table = models.saved_cases

    def work(connection: Connection) -> None:
        key = _case_key(connection, case_set, case)
        connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))

    database.write(work)


def set_verdict(
    database: Database, run_id: str, attempt: int, trajectory_id: int, is_valid: bool, at: datetime
) -> None:
    """Keep a user's verdict on a trajectory in place of any earlier one."""

    def work(connection: Connection) -> None:
        key = _verdict_key(connection, run_id, attempt, trajectory_id)
        _delete_verdict(connection, key)
        insert_new(connection, models.verdict_overrides, [key | {"is_valid": is_valid, "at": at}])

    database.write(work)


def clear_verdict(database: Database, run_id: str, attempt: int, trajectory_id: int) -> None:
    """Forget a user's verdict on a trajectory."""
    database.write(
        lambda connection: _delete_verdict(connection, _verdict_key(connection, run_id, attempt, trajectory_id))
    )


def _case_key(connection: Connection, case_set: str, case: SavedCase) -> dict[str, Any]:
    return {
        "run_key": require_run_key(connection, case.run_id),
        "case_set": case_set.replace("\x00", ""),
        "attempt": case.attempt,
        "low_trajectory_id": case.low_trajectory_id,
        "high_trajectory_id": case.high_trajectory_id,
    }


def _verdict_key(connection: Connection, run_id: str, attempt: int, trajectory_id: int) -> dict[str, Any]:
    return {"run_key": require_run_key(connection, run_id), "attempt": attempt, "trajectory_id": trajectory_id}


def _delete_verdict(connection: Connection, key: dict[str, Any]) -> None:
    table = models.verdict_overrides
    connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))
