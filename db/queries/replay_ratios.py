"""Importance ratios of replayed trajectories, for their distribution over steps."""

from sqlalchemy import func, or_, select

from db.connections.session import Database
from db.tables import models
from db.tables.run_lookup import find_run_key


def replay_ratios(database: Database, run_id: str, max_steps: int = 150) -> dict[int, list[float]]:
    """Return the mean importance ratio of each replayed trajectory by step, of about `max_steps` steps.

    Steps are evenly spread over those that replayed, the last one included.
    """
    replays = models.replays
    with database.read() as connection:
        is_current = (replays.c.run_key == find_run_key(connection, run_id), ~replays.c.is_superseded)
        first, last = connection.execute(
            select(func.min(replays.c.step), func.max(replays.c.step)).where(*is_current)
        ).one()
        if last is None:
            return {}
        stride = -(-(last - first + 1) // max_steps)
        query = select(replays.c.step, replays.c.mean_ratio).where(
            *is_current, replays.c.mean_ratio.is_not(None), or_(replays.c.step % stride == 0, replays.c.step == last)
        )
        ratios: dict[int, list[float]] = {}
        for step, ratio in connection.execute(query.order_by(replays.c.step)):
            ratios.setdefault(step, []).append(ratio)
        return ratios
