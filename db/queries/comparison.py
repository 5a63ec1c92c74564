"""What aligns the curves of several runs: how far each had got, in another measure than steps."""

from sqlalchemy import func, or_, select

from db import models
from db.queries.run_lookup import find_run_key
from db.rows import MetricPoint
from db.session import Database

STEP_SECONDS = "seconds/step"


def training_seconds(database: Database, run_id: str, max_points: int = 1000) -> list[MetricPoint]:
    """Return the seconds that a run's steps had taken together after about `max_points` of them, the last always.

    Time between steps (evaluations, checkpoints, waiting for a resume) does not count.
    """
    metrics = models.metrics
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        is_wanted = (metrics.c.run_key == run_key, metrics.c.key == STEP_SECONDS, ~metrics.c.is_superseded)
        count, last = connection.execute(select(func.count(), func.max(metrics.c.step)).where(*is_wanted)).one()
        if not count:
            return []
        so_far = (
            select(metrics.c.step, func.sum(metrics.c.value).over(order_by=metrics.c.step).label("seconds"))
            .where(*is_wanted)
            .subquery()
        )
        stride = -(-last // max_points)
        query = select(so_far).where(or_(so_far.c.step % stride == 0, so_far.c.step == last)).order_by(so_far.c.step)
        return [MetricPoint(step, seconds) for step, seconds in connection.execute(query)]
