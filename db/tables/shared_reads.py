"""From a run's id to its key in the database."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, RowMapping, select, text

from exgrpo.db.rows.runs import UnknownRunError
from exgrpo.db.tables.models import metrics, runs

Values = npt.NDArray[np.float64]
"""Values of one metric (num_points,)."""
Steps = npt.NDArray[np.int64]
"""The steps of values (num_points,)."""


def find_run_key(connection: Connection, run_id: str) -> int | None:
    """Return the run's key, or None if there is no such run."""
    if "\0" in run_id:  # PostgreSQL stores no such text
        return None
    return connection.scalar(select(runs.c.run_key).where(runs.c.run_id == run_id))


def require_run_key(connection: Connection, run_id: str) -> int:
    """Return the run's key.

    Raises:
        UnknownRunError: There is no such run.
    """
    run_key = find_run_key(connection, run_id)
    if run_key is None:
        raise UnknownRunError(f"{run_id}: the database has no such run; `exgrpo runs` lists the runs.")
    return run_key


# The names one after the other by the primary key: a grouping would read every value of the run.
_NEWEST = text("""
    WITH RECURSIVE names(name) AS (
        SELECT min(name) FROM metrics WHERE run_key = :run_key
        UNION ALL
        SELECT (SELECT min(name) FROM metrics WHERE run_key = :run_key AND name > names.name) FROM names
        WHERE name IS NOT NULL
    )
    SELECT names.name AS name, newest.step AS step, newest.value AS value FROM names JOIN metrics AS newest
    ON newest.run_key = :run_key AND newest.name = names.name
    AND (newest.step, newest.attempt) = (
        SELECT step, attempt FROM metrics
        WHERE run_key = :run_key AND name = names.name
        ORDER BY step DESC, attempt DESC LIMIT 1
    )
""").columns(metrics.c.name, metrics.c.step, metrics.c.value)


class Curve(NamedTuple):
    """A metric by step, in their order."""

    steps: Steps
    values: Values


def read_curves(
    connection: Connection, run_key: int, names: Sequence[str], condition: ColumnElement[bool] | None = None
) -> dict[str, Curve]:
    """Return each metric at the steps that fulfil the condition; it may have no points."""
    query = (
        select(metrics.c.name, metrics.c.step, metrics.c.value)
        .where(metrics.c.run_key == run_key, metrics.c.name.in_(names))
        .order_by(metrics.c.name, metrics.c.step, metrics.c.attempt)
    )
    # The driver's tuples: a row object for each value would double the time of reading.
    with connection.execute(query if condition is None else query.where(condition)) as result:
        rows = result.cursor.fetchall()
    points: dict[str, list[tuple[int, float | None]]] = {name: [] for name in names}
    for name, step, value in rows:
        points[name].append((step, value))
    return {name: _curve(found) for name, found in points.items()}


def read_newest(connection: Connection, run_key: int) -> dict[str, float]:
    """Return the newest value of every recorded metric."""
    rows = connection.execute(_NEWEST, {"run_key": run_key})
    return {row.name: row.value for row in rows}


def question_rates(row: RowMapping) -> dict[str, float]:
    """Return the share of correct answers to each question, of a row of a table of scores."""
    counts = zip(row["question_ids"], row["num_correct"], strict=True)
    return {question_id: count / row["samples_per_question"] for question_id, count in counts}


def _curve(points: Sequence[tuple[int, float | None]]) -> Curve:
    steps, values = zip(*points, strict=True) if points else ((), ())
    return Curve(np.array(steps, np.int64), np.array(values, np.float64))
