"""The order of runs in lists, and where the next page starts, as conditions in SQL."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from db.queries.run_methods import method_expression
from db.tables import models


class RunSortKey(StrEnum):
    """The sort key of runs."""

    CREATED = "created"
    STARTED = "started"
    NAME = "name"
    STATE = "state"
    METHOD = "method"
    PROGRESS = "progress"
    PASS_AT_1 = "pass_at_1"
    AVG_AT_N = "avg_at_n"


@dataclass(frozen=True, slots=True)
class RunOrder:
    """How runs are sorted; runs without a value come last in both directions, equal ones with the greatest id first."""

    key: RunSortKey = RunSortKey.CREATED
    is_descending: bool = True


NEWEST_FIRST = RunOrder()
_STATES = ("running", "starting", "stopping", "queued", "failed", "lost", "stopped", "finished")
"""States from live to ended."""


def sort_columns(order: RunOrder) -> list[ColumnElement[Any]]:
    """Return the columns to order by."""
    value = _value(order.key)
    ordered = value.desc() if order.is_descending else value.asc()
    return [value.is_(None), ordered, models.runs.c.run_id.desc()]


def comes_after(connection: Connection, order: RunOrder, run_id: str) -> ColumnElement[bool]:
    """Return the condition that a run comes after the run of this id, by its present value."""
    id_column, value = models.runs.c.run_id, _value(order.key)
    last = connection.scalar(select(value).where(id_column == run_id))
    if last is None:
        return and_(value.is_(None), id_column < run_id)
    is_beyond = value < last if order.is_descending else value > last
    return or_(is_beyond, and_(value == last, id_column < run_id), value.is_(None))


def _value(key: RunSortKey) -> ColumnElement[Any]:
    runs = models.runs
    columns = {RunSortKey.CREATED: runs.c.created_at, RunSortKey.STARTED: runs.c.started_at}
    if key in columns:
        return columns[key]
    if key is RunSortKey.NAME:
        return func.lower(runs.c.name)
    if key is RunSortKey.STATE:
        ranks = {state: index for index, state in enumerate(_STATES)}
        return case(ranks, value=runs.c.status, else_=len(ranks))
    if key is RunSortKey.METHOD:
        return func.lower(method_expression())
    if key is RunSortKey.PROGRESS:
        return runs.c.step * 1.0 / func.nullif(runs.c.spec["num_steps"].as_float(), 0.0)
    score: ColumnElement[Any] = runs.c.summary[f"last_{key}"].as_float()
    return score
