"""Several runs at once: the x axes of their curves."""

from enum import StrEnum

from app.queries.answers import ask
from app.queries.runs import MAX_CHART_POINTS, metric_series
from db.queries import metrics
from db.rows.runs import MetricPoint


class Axis(StrEnum):
    """The x axis of curves; a value is the word in the address."""

    STEPS = "steps"
    ROLLOUTS = "rollouts"
    TOKENS = "tokens"
    TIME = "time"
    CLOCK = "clock"


_KEYS = {Axis.ROLLOUTS: "rollouts/fresh_total", Axis.TOKENS: "tokens/generated_total"}


def axis_points(run_id: str, axis: Axis) -> list[MetricPoint] | None:
    """Return the axis's value after each step of a run; None for the axis of steps, empty if it was not recorded."""
    if axis is Axis.STEPS:
        return None
    if axis is Axis.TIME:
        return ask(metrics.training_seconds, run_id, MAX_CHART_POINTS)
    if axis is Axis.CLOCK:
        return ask(metrics.clock_seconds, run_id, MAX_CHART_POINTS)
    return metric_series(run_id, [_KEYS[axis]])[_KEYS[axis]]
