"""Names of runs to choose from, read without the rest of their rows."""

from typing import NamedTuple

from sqlalchemy import select

from db.connections.session import Database
from db.queries.run_filter import RunFilter, conditions
from db.tables import models


class RunName(NamedTuple):
    """A run as a choice offers it."""

    run_id: str
    name: str
    step: int
    """Training steps done; 0 before the first."""


def list_run_names(database: Database, where: RunFilter, *, has_steps: bool = False, limit: int = 100) -> list[RunName]:
    """Return the runs that fit, newest first; with `has_steps` only those that have done a step."""
    runs = models.runs
    query = select(runs.c.run_id, runs.c.name, runs.c.step).where(*conditions(where))
    if has_steps:
        query = query.where(runs.c.step > 0)
    query = query.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
    with database.read() as connection:
        return [RunName(*row) for row in connection.execute(query)]
