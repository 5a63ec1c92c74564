"""Trajectories that users marked: the marks of one, all marks, and the trajectories with a mark."""

from sqlalchemy import and_, func, select

from db.connections.session import Database
from db.rows.marks import MarkCount, MarkedRow, MarkedTrajectory
from db.tables import models


def list_marks(database: Database) -> list[MarkCount]:
    """Return every mark, by name."""
    table = models.trajectory_marks
    query = (
        select(table.c.mark, func.count(), func.count(table.c.run_key.distinct()))
        .group_by(table.c.mark)
        .order_by(table.c.mark)
    )
    with database.read() as connection:
        return [MarkCount(*row) for row in connection.execute(query)]


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
    """Return the trajectories with a mark, newest mark first; those that are not in the database are left out."""
    marks, trajectories, runs = models.trajectory_marks, models.trajectories, models.runs
    texts, questions = models.trajectory_texts, models.questions
    is_it = and_(
        trajectories.c.run_key == marks.c.run_key,
        trajectories.c.attempt == marks.c.attempt,
        trajectories.c.trajectory_id == marks.c.trajectory_id,
    )
    is_asked = and_(
        questions.c.run_key == trajectories.c.run_key,
        questions.c.question_set == "training",
        questions.c.question_index == trajectories.c.question_index,
    )
    query = (
        select(
            runs.c.run_id, marks.c.attempt, marks.c.trajectory_id, marks.c.mark, marks.c.comment,
            runs.c.name, trajectories.c.step, trajectories.c.question_index, questions.c.prompt_text,
            questions.c.answer, trajectories.c.reward, trajectories.c.mean_entropy, trajectories.c.num_tokens,
            texts.c.text,
        )
        .select_from(marks.join(runs).join(trajectories, is_it).join(questions, is_asked))
        .join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
        .where(marks.c.mark == mark)
        .order_by(marks.c.at.desc(), trajectories.c.trajectory_key.desc())
        .limit(limit)
    )  # fmt: skip
    with database.read() as connection:
        rows = [tuple(row) for row in connection.execute(query)]
    return [MarkedRow(MarkedTrajectory(*row[:5]), *row[5:]) for row in rows]
