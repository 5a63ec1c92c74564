"""Whether a trajectory is correct, of columns in the database: the rule of `exgrpo_core.sums.is_correct`."""

from sqlalchemy import ColumnElement, FromClause, case, null

from exgrpo.db.tables import models
from exgrpo_core.sums import CORRECT_REWARD, OUTCOMES, VERDICTS

MAX_VERDICT = 16
"""Of a longer verdict the beginning is stored."""


def is_correct_column(table: FromClause = models.trajectories) -> ColumnElement[bool]:
    """Return whether trajectories are correct, NULL where that is not known."""
    reward, verdict = table.c.reward, table.c.verdict
    return case(
        (table.c.recorded_id.is_(None), reward >= CORRECT_REWARD),
        (verdict.in_(VERDICTS), verdict == VERDICTS[0]),
        (reward.in_(OUTCOMES), reward == 1.0),
        else_=null(),
    )
