"""Trajectories that users marked."""

from app.queries.answers import ask
from db.queries import trajectory_marks
from db.rows.marks import MarkCount, MarkedRow, MarkedTrajectory


def list_marks() -> list[MarkCount]:
    """Return every mark, by name."""
    return ask(trajectory_marks.list_marks)


def marks_of(run_id: str, attempt: int, trajectory_id: int) -> list[MarkedTrajectory]:
    """Return the marks of one trajectory."""
    return ask(trajectory_marks.marks_of, run_id, attempt, trajectory_id)


def marked_trajectories(mark: str) -> list[MarkedRow]:
    """Return what carries a mark, marked last first."""
    return ask(trajectory_marks.marked_trajectories, mark)
