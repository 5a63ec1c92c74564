"""What each step selected for replay, and which choices contradict their scores."""

from itertools import starmap

from sqlalchemy import Integer, Table, and_, case, cast, func, or_, select

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.replays import SelectionRow, WrongChoiceRow
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import Number

MAX_WRONG = 200


def steps_with_selections(database: Database, run_id: str) -> list[int]:
    """Return the steps that drew from the buffer, in order."""
    return _steps_in(database, run_id, models.selections)


def list_selections(database: Database, run_id: str, step: int) -> list[SelectionRow]:
    """Return a step's selections, by question, with the record of each replay."""
    chosen, replays, rolled_out = models.selections, models.replays, models.trajectories
    is_replay = and_(
        replays.c.run_key == chosen.c.run_key,
        replays.c.step == chosen.c.step,
        replays.c.attempt == chosen.c.attempt,
        replays.c.question_index == chosen.c.question_index,
    )
    rollout_file = (
        select(rolled_out.c.file)
        .where(
            rolled_out.c.run_key == chosen.c.run_key,
            rolled_out.c.question_index == chosen.c.question_index,
            rolled_out.c.trajectory_id == chosen.c.chosen_trajectory_id,
        )
        .limit(1)
        .scalar_subquery()
    )
    names = ("num_tokens", "mean_entropy", "mean_log_prob", "mean_ratio", "max_ratio", "file")
    query = (
        select(
            chosen.c.question_index, chosen.c.bucket, chosen.c.chosen_trajectory_id, replays.c.trajectory_id,
            *(replays.c[name] for name in names), rollout_file,
        )
        .join_from(chosen, models.runs)
        .join(replays, is_replay, isouter=True)
        .where(models.runs.c.run_id == run_id, chosen.c.step == step)
        .order_by(chosen.c.question_index)
    )  # fmt: skip
    # Where a method replays several trajectories of a question, the row is of the first one chosen.
    by_question: dict[int, SelectionRow] = {}
    with database.read() as connection:
        for row in starmap(SelectionRow, connection.execute(query)):
            if row.chosen_trajectory_id == row.replayed_trajectory_id or row.question_index not in by_question:
                by_question[row.question_index] = row
    return list(by_question.values())


def steps_with_trajectories(database: Database, run_id: str) -> list[int]:
    """Return the steps that rolled out or replayed something, in order."""
    return sorted({*_steps_in(database, run_id, models.trajectories), *_steps_in(database, run_id, models.replays)})


def _steps_in(database: Database, run_id: str, table: Table) -> list[int]:
    query = (
        select(table.c.step).join(models.runs).where(models.runs.c.run_id == run_id).distinct().order_by(table.c.step)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def wrong_choices(database: Database, run_id: str, step_from: int = 0) -> list[WrongChoiceRow]:
    """Return choices of trajectories that contradict their recorded scores, at most 200.

    The worst score that was chosen is compared with the best one that was not. Without scores, as with random choice,
    only a missing choice can be wrong.
    """
    table = models.candidates
    num_chosen = func.sum(cast(case((table.c.is_chosen, 1), else_=0), Integer))
    lowest = func.min(case((~table.c.is_chosen, table.c.score)), type_=Number)
    chosen_score = func.max(case((table.c.is_chosen, table.c.score)), type_=Number)
    query = (
        select(table.c.step, table.c.question_index, num_chosen, chosen_score, lowest)
        .join(models.runs, models.runs.c.run_key == table.c.run_key)
        .where(models.runs.c.run_id == run_id, table.c.step >= step_from)
        .group_by(table.c.step, table.c.attempt, table.c.question_index)
        .having(or_(num_chosen == 0, chosen_score > lowest))
        .order_by(table.c.step, table.c.question_index)
        .limit(MAX_WRONG)
    )
    return [WrongChoiceRow(*row) for row in database.rows(query)]
