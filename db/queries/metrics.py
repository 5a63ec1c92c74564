"""Curves: metrics by step, thinned out with their extremes kept, and evaluations."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Double, and_, func, or_, select, type_coerce

from db import models
from db.queries.run_lookup import find_run_key
from db.rows import EvaluationRow, MetricPoint
from db.session import Database

Values = npt.NDArray[np.float64]


def metric_series(
    database: Database, run_id: str, keys: Sequence[str], max_points: int = 1000
) -> dict[str, list[MetricPoint]]:
    """Return at most `max_points` recorded values of each metric: of each stretch of steps the lowest and the highest.

    The first and the newest value are always there. A metric that was never recorded has no points.
    """
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        if run_key is None:
            return {key: [] for key in keys}
        return {key: _thinned_series(connection, run_key, key, max_points) for key in keys}


def read_series(connection: Connection, run_key: int, key: str, max_points: int) -> list[MetricPoint]:
    """Return about `max_points` values of a metric, evenly spread over the steps, the newest always."""
    metrics = models.metrics
    is_wanted = and_(metrics.c.run_key == run_key, metrics.c.key == key, ~metrics.c.is_superseded)
    span = select(func.count(), func.min(metrics.c.step), func.max(metrics.c.step)).where(is_wanted)
    count, first, last = connection.execute(span).one()
    if not count:
        return []
    stride = 1 if count <= max_points else math.ceil((last - first + 1) / max_points)
    query = select(metrics.c.step, metrics.c.value).where(is_wanted).order_by(metrics.c.step)
    if stride > 1:
        query = query.where(or_(metrics.c.step % stride == 0, metrics.c.step == last))
    return [MetricPoint(step, value) for step, value in connection.execute(query)]


def last_metrics(database: Database, run_id: str) -> dict[str, float]:
    """Return the newest value of every metric that was recorded."""
    metrics = models.metrics
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        is_shown = and_(metrics.c.run_key == run_key, ~metrics.c.is_superseded)
        newest = select(metrics.c.key, func.max(metrics.c.step).label("step")).where(is_shown).group_by(metrics.c.key)
        last = newest.subquery()
        query = (
            select(metrics.c.key, metrics.c.value)
            .join(last, and_(metrics.c.key == last.c.key, metrics.c.step == last.c.step))
            .where(is_shown)
        )
        rows = connection.execute(query)
        return {row.key: row.value for row in rows}


def list_evaluations(database: Database, run_id: str) -> list[EvaluationRow]:
    """Return a run's evaluations in order of steps; of one that was done twice, the newer."""
    evaluations, runs = models.evaluations, models.runs
    query = (
        select(evaluations)
        .join(runs)
        .where(runs.c.run_id == run_id, ~evaluations.c.is_superseded)
        .order_by(evaluations.c.step, evaluations.c.question_set, evaluations.c.attempt)
    )
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    newest = {
        (row["step"], row["question_set"]): EvaluationRow(
            step=row["step"],
            question_set=row["question_set"],
            num_questions=len(row["num_correct"]),
            samples_per_question=row["samples_per_question"],
            avg_at_n=row["avg_at_n"],
            standard_error=row["standard_error"],
            pass_at_n=row["pass_at_n"],
        )
        for row in rows
    }
    return list(newest.values())


def _thinned_series(connection: Connection, run_key: int, key: str, max_points: int) -> list[MetricPoint]:
    metrics = models.metrics
    # As the driver gives them: a row object for each value would take as long again as reading it.
    query = (
        select(metrics.c.step, type_coerce(metrics.c.value, Double))
        .where(metrics.c.run_key == run_key, metrics.c.key == key, ~metrics.c.is_superseded)
        .order_by(metrics.c.step)
    )
    with connection.execute(query) as result:
        rows = result.cursor.fetchall()
    if not rows:
        return []
    steps, values = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    if len(steps) > max_points:
        kept = _extremes(steps, values, max_points)
        steps, values = steps[kept], values[kept]
    return [MetricPoint(int(step), value) for step, value in zip(steps.tolist(), values.tolist(), strict=True)]


def _extremes(steps: Values, values: Values, max_points: int) -> npt.NDArray[np.intp]:
    """Return the points to keep: both ends, and the lowest and highest value of each stretch of steps."""
    num_stretches = max(1, max_points // 2 - 1)
    stretches = ((steps - steps[0]) * num_stretches / (steps[-1] - steps[0] + 1)).astype(np.int64)
    # NaN goes to the end of its stretch, and counts as highest only where there is nothing else.
    order = np.lexsort((values, np.isnan(values), stretches))
    ordered, is_number = stretches[order], ~np.isnan(values[order])
    is_first = np.diff(ordered, prepend=-1) > 0
    is_last_number = is_number & (np.append(ordered[1:] != ordered[:-1], True) | ~np.append(is_number[1:], False))
    return np.unique(np.concatenate([order[is_first | is_last_number], [0, len(steps) - 1]]))
