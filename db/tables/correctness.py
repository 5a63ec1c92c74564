"""Whether a trajectory is correct: one rule, of rows in Python and of columns in the database.

Of a recorded one its verdict says so, else a reward that is -1, 0 or 1; a reward on another scale does not. The rewards
of this workbench's training are 1 and more for right answers, whatever their parts are.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, FromClause, RowMapping, case, null

from db.rows.trajectories import VERDICTS
from db.tables import models

OUTCOMES = (-1.0, 0.0, 1.0)
MAX_VERDICT = 16
"""Of a longer verdict the beginning is stored."""


def is_correct(row: Mapping[str, Any] | RowMapping) -> bool | None:
    """Return whether the trajectory of a row or event is correct, None where that is not known."""
    reward, verdict = row["reward"], row["verdict"]
    if row.get("recorded_id") is None:
        return None if reward is None else reward >= 1.0
    if verdict in VERDICTS:
        return bool(verdict == VERDICTS[0])
    return reward == 1.0 if reward in OUTCOMES else None


def is_correct_column(table: FromClause = models.trajectories) -> ColumnElement[bool]:
    """Return the same of trajectories in the database, NULL where that is not known."""
    reward, verdict = table.c.reward, table.c.verdict
    return case(
        (table.c.recorded_id.is_(None), reward >= 1.0),
        (verdict.in_(VERDICTS), verdict == VERDICTS[0]),
        (reward.in_(OUTCOMES), reward == 1.0),
        else_=null(),
    )
