"""Reads metrics from the packed values of steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, LargeBinary, case, func, select

from db.tables import models
from db.tables.metric_values import VALUE

Values = npt.NDArray[np.float64]
"""Values of one metric (num_points,)."""
Steps = npt.NDArray[np.int64]
"""The steps of values (num_points,)."""


class Curve(NamedTuple):
    """A metric by step, in their order."""

    steps: Steps
    values: Values


class Span(NamedTuple):
    """The first and last step and the number of steps that recorded a set of names."""

    names: Sequence[str]
    first_step: int
    last_step: int
    num_steps: int


def list_spans(connection: Connection, run_key: int) -> list[Span]:
    """Return a span for each set of names that steps which are not superseded recorded together."""
    step, names_key = models.steps.c.step, models.steps.c.names_key
    query = (
        select(names_key, func.min(step), func.max(step), func.count())
        .where(models.steps.c.run_key == run_key, ~models.steps.c.is_superseded, names_key.is_not(None))
        .group_by(names_key)
    )
    spans = connection.execute(query).all()
    names = list_names(connection, run_key)
    return [Span(names[key], *span) for key, *span in spans]


def list_names(connection: Connection, run_key: int) -> dict[int, list[str]]:
    """Return the names that steps of a run recorded together, by their key."""
    table = models.metric_names
    query = select(table.c.names_key, table.c.names).where(table.c.run_key == run_key).order_by(table.c.names_key)
    return {row.names_key: row.names for row in connection.execute(query)}


def read_curves(
    connection: Connection, run_key: int, keys: Sequence[str], condition: ColumnElement[bool] | None = None
) -> dict[str, Curve]:
    """Return each metric at the steps that are not superseded and fulfil the condition; it may have no points."""
    steps = models.steps
    sets = {name: names for name, names in list_names(connection, run_key).items() if not set(keys).isdisjoint(names)}
    if not sets:
        return {key: Curve(np.empty(0, np.int64), np.empty(0)) for key in keys}
    packed: ColumnElement[bytes] = steps.c.metric_values
    if len(keys) == 1:
        first_bytes = {item: 1 + VALUE.itemsize * names.index(keys[0]) for item, names in sets.items()}
        first_byte = case(first_bytes, value=steps.c.names_key)
        packed = func.substr(packed, first_byte, VALUE.itemsize, type_=LargeBinary)
        sets = {entry: [*keys] for entry in sets}
    query = (
        select(steps.c.step, steps.c.names_key, packed)
        .where(steps.c.run_key == run_key, steps.c.names_key.in_(sets), ~steps.c.is_superseded)
        .order_by(steps.c.step, steps.c.attempt)
    )
    # The driver's tuples: a row object for each step would double the time of reading.
    with connection.execute(query if condition is None else query.where(condition)) as result:
        rows = result.cursor.fetchall()
    return _unpacked(rows, sets, keys)


def read_newest(connection: Connection, run_key: int) -> dict[str, float]:
    """Return the newest value of every recorded metric, superseded steps left out."""
    spans = list_spans(connection, run_key)
    names = sorted({name for span in spans for name in span.names})
    is_last = models.steps.c.step.in_({span.last_step for span in spans})
    curves = read_curves(connection, run_key, names, is_last)
    # A resume may have superseded the last steps since.
    return {key: float(curve.values[-1]) for key, curve in curves.items() if len(curve.values)}


def _unpacked(
    rows: Sequence[tuple[int, int, bytes]], sets: dict[int, list[str]], keys: Sequence[str]
) -> dict[str, Curve]:
    steps = np.array([row[0] for row in rows], np.int64)
    names_keys = np.array([row[1] for row in rows], np.int64)
    values = np.empty((len(rows), len(keys)))
    is_recorded = np.zeros(values.shape, np.bool_)
    for names_key, names in sets.items():
        indices = np.flatnonzero(names_keys == names_key)
        numbers = np.frombuffer(b"".join([rows[item][2] for item in indices.tolist()]), VALUE).reshape(-1, len(names))
        columns = np.array([column for column, key in enumerate(keys) if key in names])
        values[np.ix_(indices, columns)] = numbers[:, [names.index(keys[column]) for column in columns]]
        is_recorded[np.ix_(indices, columns)] = True
    return {
        key: Curve(steps[is_recorded[:, column]], values[is_recorded[:, column], column])
        for column, key in enumerate(keys)
    }
