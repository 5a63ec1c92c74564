"""Trajectories: pages of them, one of them, and full-text search."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, RowMapping, ScalarSelect, Select, and_, func, select

from db.connections.session import Database
from db.queries.text_search import matching_keys
from db.rows.runs import TrajectoryRow
from db.tables import models
from db.tables.run_lookup import find_run_key

PageKey = tuple[int, int]
"""(step, trajectory_id) of the last row of a page: the next page starts below it."""


@dataclass(frozen=True, slots=True)
class TrajectoryFilter:
    """Which trajectories to list; None leaves a condition out."""

    step: int | None = None
    question_index: int | None = None
    is_correct: bool | None = None
    verdict: str | None = None
    is_valid: bool | None = None
    is_truncated: bool | None = None
    includes_superseded: bool = False


def list_trajectories(
    database: Database,
    run_id: str,
    *,
    where: TrajectoryFilter | None = None,
    before: PageKey | None = None,
    limit: int = 50,
) -> list[TrajectoryRow]:
    """Return a page of a run's trajectories, newest first; `before` is the last row's (step, trajectory_id)."""
    table = models.trajectories
    query = _rows().where(*_conditions(where or TrajectoryFilter()))
    if before is not None:
        step, trajectory_id = before
        query = query.where((table.c.step < step) | ((table.c.step == step) & (table.c.trajectory_id < trajectory_id)))
    query = query.order_by(table.c.step.desc(), table.c.trajectory_id.desc()).limit(limit)
    with database.read() as connection:
        # The run key itself, not a join, so that the index gives one page in order.
        page = query.where(table.c.run_key == find_run_key(connection, run_id))
        return [_trajectory_row(row) for row in connection.execute(page).mappings()]


def get_trajectory(database: Database, run_id: str, trajectory_id: int) -> TrajectoryRow | None:
    """Return one trajectory, that of the attempt that is not superseded, or None if there is none of this id."""
    table = models.trajectories
    query = (
        _rows()
        .where(models.runs.c.run_id == run_id, table.c.trajectory_id == trajectory_id)
        .order_by(table.c.is_superseded, table.c.attempt.desc())
        .limit(1)
    )
    with database.read() as connection:
        row = connection.execute(query).mappings().first()
    return None if row is None else _trajectory_row(row)


def search(database: Database, words: str, *, run_id: str | None = None, limit: int = 50) -> list[TrajectoryRow]:
    """Return the newest trajectories whose text contains all `words`, of one run or of all."""
    with database.read() as connection:
        keys = matching_keys(connection, words, run_id, limit)
        table = models.trajectories
        query = _rows().where(table.c.trajectory_key.in_(keys)).order_by(table.c.trajectory_key.desc())
        return [_trajectory_row(row) for row in connection.execute(query).mappings()]


def find_trajectory_file(database: Database, run_id: str, trajectory_id: int) -> str | None:
    """Return the Parquet file, relative to the run directory, that holds a trajectory's tokens."""
    table = models.trajectories
    query = (
        select(table.c.file)
        .join(models.runs)
        .where(models.runs.c.run_id == run_id, table.c.trajectory_id == trajectory_id)
        .order_by(table.c.is_superseded, table.c.attempt.desc())
        .limit(1)
    )
    with database.read() as connection:
        return connection.scalar(query)


def replay_count() -> ScalarSelect[int]:
    """Return the number of replays of the trajectory in a query's row."""
    trajectories, replays = models.trajectories, models.replays
    return (
        select(func.count())
        .where(
            replays.c.run_key == trajectories.c.run_key,
            replays.c.trajectory_id == trajectories.c.trajectory_id,
            ~replays.c.is_superseded,
        )
        .scalar_subquery()
    )


def _rows() -> Select[Any]:
    table, texts, questions = models.trajectories, models.trajectory_texts, models.questions
    source: FromClause = (
        table.join(models.runs)
        .join(texts, texts.c.trajectory_key == table.c.trajectory_key)
        .outerjoin(
            questions,
            and_(
                questions.c.run_key == table.c.run_key,
                questions.c.question_set == "training",
                questions.c.question_index == table.c.question_index,
            ),
        )
    )
    return select(
        table, models.runs.c.run_id, texts.c.text, questions.c.question_id, replay_count().label("num_replays")
    ).select_from(source)


def _conditions(where: TrajectoryFilter) -> list[ColumnElement[bool]]:
    table = models.trajectories
    conditions = [
        table.c[name] == value
        for name in ("step", "question_index", "verdict", "is_valid", "is_truncated")
        if (value := getattr(where, name)) is not None
    ]
    if where.is_correct is not None:
        conditions.append((table.c.reward >= 1.0) if where.is_correct else (table.c.reward < 1.0))
    if not where.includes_superseded:
        conditions.append(~table.c.is_superseded)
    return conditions


def _trajectory_row(row: RowMapping) -> TrajectoryRow:
    values = {name: row[name] for name in TrajectoryRow.__dataclass_fields__}
    return TrajectoryRow(**values | {"question_id": row["question_id"] or ""})
