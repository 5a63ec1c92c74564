"""One trajectory: its row and the file of its tokens."""

from typing import Any

from sqlalchemy import FromClause, RowMapping, ScalarSelect, Select, and_, func, select

from db.connections.session import Database
from db.rows.runs import TrajectoryRow
from db.tables import models


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


def _trajectory_row(row: RowMapping) -> TrajectoryRow:
    values = {name: row[name] for name in TrajectoryRow.__dataclass_fields__}
    return TrajectoryRow(**values | {"question_id": row["question_id"] or ""})
