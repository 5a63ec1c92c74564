"""Training time by step, to draw the curves of several runs against."""

import numpy as np
from sqlalchemy import select

from db.connections.session import Database
from db.rows.runs import MetricPoint
from db.tables import models
from db.tables.run_lookup import find_run_key
from db.tables.step_values import read_curves

STEP_SECONDS = "seconds/step"


def clock_seconds(database: Database, run_id: str, max_points: int = 1000) -> list[MetricPoint]:
    """Return the seconds from a run's first step to about `max_points` of its steps, the last always, pauses counted.

    The first step counts from its start, as far as its time was recorded.
    """
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        if run_key is None:
            return []
        steps = models.steps
        query = select(steps.c.step, steps.c.at).where(steps.c.run_key == run_key, ~steps.c.is_superseded)
        rows = connection.execute(query.order_by(steps.c.step)).all()
        first = read_curves(connection, run_key, [STEP_SECONDS], steps.c.step == rows[0].step) if rows else {}
    if not rows:
        return []
    values = first[STEP_SECONDS].values
    before = float(values[0]) if len(values) and np.isfinite(values[0]) else 0.0
    stride = -(-rows[-1].step // max_points)
    wanted = [row for row in rows if row.step % stride == 0 or row is rows[-1]]
    return [MetricPoint(row.step, before + (row.at - rows[0].at).total_seconds()) for row in wanted]


def training_seconds(database: Database, run_id: str, max_points: int = 1000) -> list[MetricPoint]:
    """Return the seconds that a run's steps took together, up to about `max_points` of them and the last one.

    Time between steps (evaluations, checkpoints, waiting for a resume) does not count.
    """
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        if run_key is None:
            return []
        steps, values = read_curves(connection, run_key, [STEP_SECONDS])[STEP_SECONDS]
    if not len(steps):
        return []
    is_wanted = (steps % -(-steps[-1] // max_points) == 0) | (steps == steps[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        seconds = np.nancumsum(values)
    return [MetricPoint(*point) for point in zip(steps[is_wanted].tolist(), seconds[is_wanted].tolist(), strict=True)]
