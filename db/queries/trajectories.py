"""One trajectory: its row and the file of its tokens."""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Row, ScalarSelect, Select, and_, func, null, select

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.trajectories import MarkCount, MarkedRow, MarkedTrajectory, TrajectoryRow
from exgrpo.db.tables import models
from exgrpo_core.recording.conversations import from_document
from exgrpo_core.recording.rows import Message

IS_ITS_QUESTION = and_(
    models.questions.c.run_key == models.trajectories.c.run_key,
    models.questions.c.question_set == "training",
    models.questions.c.question_index == models.trajectories.c.question_index,
)
"""Joins a trajectory with the question that it answers."""
IN_FILES_ONLY = "A later attempt repeated its step, so that only the run's files have it."
"""Stands for the text of a trajectory that users marked."""


def get_trajectory(database: Database, run_id: str, trajectory_id: int) -> TrajectoryRow | None:
    """Return one trajectory, or None if there is none of this id."""
    row = _find(database, select_rows(), run_id, trajectory_id)
    return None if row is None else TrajectoryRow(*tuple(row))


def messages_of(database: Database, run_id: str, trajectory_id: int) -> tuple[Message, ...]:
    """Return a trajectory's messages, empty if there is none of this id; where texts say everything, those two."""
    texts = models.trajectory_texts
    query = select(texts.c.messages, texts.c.text, models.questions.c.prompt_text).select_from(_source())
    row = _find(database, query, run_id, trajectory_id)
    if row is None:
        return ()
    if row.messages is not None:
        return from_document(row.messages)
    return Message("user", row.prompt_text or ""), Message("assistant", row.text, is_generated=True)


def find_trajectory_file(database: Database, run_id: str, trajectory_id: int) -> str | None:
    """Return where in the run directory a trajectory's tokens are: `FILE@BYTE`."""
    row = _find(database, select(models.trajectories.c.file).join(models.runs), run_id, trajectory_id)
    return None if row is None else row.file


def _find(database: Database, query: Select[Any], run_id: str, trajectory_id: int) -> Row[Any] | None:
    table = models.trajectories
    is_it = (models.runs.c.run_id == run_id, table.c.trajectory_id == trajectory_id)
    with database.read() as connection:
        return connection.execute(query.where(*is_it).order_by(table.c.attempt.desc()).limit(1)).first()


def replay_count() -> ScalarSelect[int]:
    """Return the number of replays of the trajectory in a query's row."""
    trajectories, replays = models.trajectories, models.replays
    return (
        select(func.count())
        .where(
            replays.c.run_key == trajectories.c.run_key,
            replays.c.trajectory_id == trajectories.c.trajectory_id,
        )
        .scalar_subquery()
    )


def _source() -> FromClause:
    table, texts = models.trajectories, models.trajectory_texts
    with_texts = table.join(models.runs).join(texts, texts.c.trajectory_key == table.c.trajectory_key)
    return with_texts.outerjoin(models.questions, IS_ITS_QUESTION)


def select_rows(most: int | None = None, *, has_messages: bool = False) -> Select[Any]:
    """Return the query for the fields of `TrajectoryRow`, of texts at most the first `most` characters."""
    questions = models.questions
    messages = models.trajectory_texts.c.messages if has_messages else null()
    texts = {"text": models.trajectory_texts.c.text, "prompt": func.coalesce(questions.c.prompt_text, "")}
    columns: dict[str, ColumnElement[Any]] = {
        **{column.name: column for column in models.trajectories.c},
        **{name: text if most is None else func.substr(text, 1, most) for name, text in texts.items()},
        "run_id": models.runs.c.run_id,
        "run_name": models.runs.c.name,
        "question_id": func.coalesce(questions.c.question_id, ""),
        "num_replays": replay_count(),
        "messages": messages,
    }
    fields = TrajectoryRow.__dataclass_fields__
    return select(*(columns[name].label(name) for name in fields)).select_from(_source())


def list_marks(database: Database) -> list[MarkCount]:
    """Return every mark, by name."""
    table = models.trajectory_marks
    query = (
        select(table.c.mark, func.count(), func.count(table.c.run_key.distinct()))
        .group_by(table.c.mark)
        .order_by(table.c.mark)
    )
    return [MarkCount(*row) for row in database.rows(query)]


def marks_of(database: Database, run_id: str, attempt: int, trajectory_id: int) -> list[MarkedTrajectory]:
    """Return the marks of one trajectory, by name."""
    table = models.trajectory_marks
    query = (
        select(table.c.mark, table.c.comment)
        .join(models.runs)
        .where(models.runs.c.run_id == run_id, table.c.attempt == attempt, table.c.trajectory_id == trajectory_id)
        .order_by(table.c.mark)
    )
    with database.read() as connection:
        rows = connection.execute(query)
        return [MarkedTrajectory(run_id, attempt, trajectory_id, mark, comment) for mark, comment in rows]


def marked_trajectories(database: Database, mark: str, *, limit: int = 500) -> list[MarkedRow]:
    """Return the trajectories with a mark, newest mark first; those of repeated steps without what the files have."""
    marks, trajectories, runs = models.trajectory_marks, models.trajectories, models.runs
    texts, questions = models.trajectory_texts, models.questions
    is_it = and_(
        trajectories.c.run_key == marks.c.run_key,
        trajectories.c.attempt == marks.c.attempt,
        trajectories.c.trajectory_id == marks.c.trajectory_id,
    )
    query = (
        select(
            runs.c.run_id, marks.c.attempt, marks.c.trajectory_id, marks.c.mark, marks.c.comment,
            runs.c.name, trajectories.c.step, trajectories.c.question_index,
            func.coalesce(questions.c.prompt_text, ""), func.coalesce(questions.c.answer, ""),
            trajectories.c.reward, trajectories.c.mean_entropy, trajectories.c.num_tokens,
            func.coalesce(texts.c.text, IN_FILES_ONLY),
        )
        .select_from(marks.join(runs).outerjoin(trajectories, is_it).outerjoin(questions, IS_ITS_QUESTION))
        .outerjoin(texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
        .where(marks.c.mark == mark)
        .order_by(marks.c.at.desc(), marks.c.attempt.desc(), marks.c.trajectory_id.desc())
        .limit(limit)
    )  # fmt: skip
    with database.read() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    return [MarkedRow(MarkedTrajectory(*row[:5]), *row[5:]) for row in rows]
