"""What aligns the curves of several runs: how far each had got, in another measure than steps."""

import numpy as np

from db.connections.session import Database
from db.rows.runs import MetricPoint
from db.tables.run_lookup import find_run_key
from db.tables.step_values import read_curves

STEP_SECONDS = "seconds/step"


def training_seconds(database: Database, run_id: str, max_points: int = 1000) -> list[MetricPoint]:
    """Return the seconds that a run's steps had taken together after about `max_points` of them, the last always.

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
