"""Right and wrong answers against valid and invalid reasoning, with entropy; the newest wrong answers."""

import math

from sqlalchemy import and_, func, select

from db.connections.session import Database
from db.queries.verdicts import judged_trajectories
from db.rows.failures import OutcomeCell, WrongAnswer
from db.tables import models

MAX_WRONG_ANSWERS = 400


def outcome_cells(database: Database, run_id: str, judge_run_id: str | None = None) -> list[OutcomeCell]:
    """Return a run's trajectories by answer and verdict, right answers first; cells without any are left out.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories = models.trajectories
    is_correct, entropy = trajectories.c.reward >= 1.0, trajectories.c.mean_entropy
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        query = (
            select(
                is_correct,
                judged.verdict,
                func.count(),
                func.count(entropy),
                func.sum(entropy),
                func.sum(entropy * entropy),
            )
            .select_from(judged.source)
            .where(*judged.conditions)
            .group_by(is_correct, judged.verdict)
        )
        cells = [_cell(*row) for row in connection.execute(query)]
    return sorted(cells, key=lambda cell: (not cell.is_correct, cell.is_valid is None, not cell.is_valid))


def wrong_answers(database: Database, run_id: str) -> list[WrongAnswer]:
    """Return the newest `MAX_WRONG_ANSWERS` wrong answers with their questions, newest first.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories, texts, questions = models.trajectories, models.trajectory_texts, models.questions
    is_its_question = and_(
        questions.c.run_key == trajectories.c.run_key,
        questions.c.question_index == trajectories.c.question_index,
        questions.c.question_set == "training",
    )
    of_trajectory = ("trajectory_id", "step", "question_index", "mean_entropy", "correctness_rate")
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                *(trajectories.c[name] for name in of_trajectory),
                questions.c.prompt_text,
                questions.c.details,
                texts.c.text,
            )
            .join_from(trajectories, texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
            .join(questions, is_its_question)
            .where(*judged.conditions, trajectories.c.reward < 1.0)
            .order_by(trajectories.c.step.desc(), trajectories.c.trajectory_id.desc())
            .limit(MAX_WRONG_ANSWERS)
        )
        return [WrongAnswer(**row) for row in connection.execute(query).mappings()]


def _cell(
    is_correct: bool, is_valid: bool | None, count: int, num_known: int, total: float | None, squares: float | None
) -> OutcomeCell:
    if not num_known or total is None or squares is None:
        return OutcomeCell(bool(is_correct), is_valid, count, math.nan, math.nan)
    mean = total / num_known
    return OutcomeCell(bool(is_correct), is_valid, count, mean, math.sqrt(max(0.0, squares / num_known - mean**2)))
