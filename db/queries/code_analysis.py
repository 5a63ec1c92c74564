"""Code in trajectories, and entropy against validity: the paper's tables and figures, summed in SQL."""

import math

from sqlalchemy import func, select

from db.connections.session import Database
from db.queries.verdicts import difficulty_column, judged_trajectories
from db.rows.analysis import ALL, CodeLine, Difficulty, EntropyPoint, EntropyPoints, RuleCount, RuleHit
from db.rows.snippets import SNIPPET_CHARACTERS, shorten
from db.tables import models

MAX_POINTS = 20_000
_READ_CHARACTERS = 20 * SNIPPET_CHARACTERS
"""More than a snippet has, since spaces and line breaks count as one."""
_Sums = tuple[float, ...]


def code_lines(database: Database, run_id: str, judge_run_id: str | None = None) -> list[CodeLine]:
    """Return entropy and CoT correctness without and with code, by difficulty and over all.

    Verdicts are those of a judge's job, or without one the oracle's; a user's verdict counts before both. Trajectories
    that were not checked for code are left out.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        difficulty = difficulty_column().label("difficulty")
        query = (
            select(
                difficulty,
                trajectories.c.has_code,
                func.count(),
                func.count(trajectories.c.mean_entropy),
                func.coalesce(func.sum(trajectories.c.mean_entropy), 0.0),
                func.count(judged.verdict),
                func.count().filter(judged.verdict.is_(True)),
                func.count(judged.by_judge),
                func.count().filter(judged.by_judge.is_(True)),
            )
            .select_from(judged.source)
            .where(*judged.conditions, trajectories.c.reward >= 1.0, trajectories.c.has_code.is_not(None))
            .group_by(difficulty, trajectories.c.has_code)
        )
        sums_by_line = {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(query)}
    lines = []
    for group in (*(level.value for level in Difficulty), ALL):
        for has_code in (False, True):
            parts = [
                sums
                for (name, is_with_code), sums in sums_by_line.items()
                if is_with_code is has_code and group in (ALL, name)
            ]
            lines.append(_code_line(group, has_code, parts))
    return lines


def rule_counts(database: Database, run_id: str) -> list[RuleCount]:
    """Return how many trajectories of a run fit which rules; empty if no rules were applied.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                trajectories.c.code_rules,
                trajectories.c.has_python_block,
                func.count(),
                func.count().filter(trajectories.c.reward >= 1.0),
            )
            .where(*judged.conditions, trajectories.c.code_rules.is_not(None))
            .group_by(trajectories.c.code_rules, trajectories.c.has_python_block)
            .order_by(trajectories.c.code_rules, trajectories.c.has_python_block)
        )
        return [RuleCount(*row) for row in connection.execute(query)]


def list_rule_hits(database: Database, run_id: str, rule_bit: int | None, *, limit: int = 50) -> list[RuleHit]:
    """Return trajectories that fit a rule, newest first; without a bit those with a Python block.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories, texts = models.trajectories, models.trajectory_texts
    fits = trajectories.c.has_python_block if rule_bit is None else trajectories.c.code_rules.bitwise_and(rule_bit) != 0
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                trajectories.c.trajectory_key,
                trajectories.c.trajectory_id,
                trajectories.c.step,
                trajectories.c.question_index,
                (trajectories.c.reward >= 1.0).label("is_correct"),
                judged.verdict.label("is_valid"),
                trajectories.c.mean_entropy,
                func.substr(texts.c.text, 1, _READ_CHARACTERS).label("text"),
            )
            .select_from(judged.source.join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key))
            .where(*judged.conditions, fits)
            .order_by(trajectories.c.trajectory_key.desc())
            .limit(limit)
        )
        rows = connection.execute(query).mappings().all()
    names = [name for name in RuleHit.__dataclass_fields__ if name != "snippet"]
    return [RuleHit(**{name: row[name] for name in names}, snippet=shorten(row["text"])) for row in rows]


def entropy_points(
    database: Database, run_id: str, judge_run_id: str | None = None, max_points: int = MAX_POINTS
) -> EntropyPoints:
    """Return the answer-correct trajectories of a run; of more than `max_points` an evenly spread part.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        is_correct = (*judged.conditions, trajectories.c.reward >= 1.0)
        num_correct = connection.scalar(select(func.count()).select_from(trajectories).where(*is_correct)) or 0
        stride = max(1, math.ceil(num_correct / max_points))
        query = (
            select(
                difficulty_column(),
                trajectories.c.has_code,
                judged.verdict,
                trajectories.c.mean_entropy,
                trajectories.c.mean_log_prob,
            )
            .select_from(judged.source)
            .where(*is_correct)
            .order_by(trajectories.c.trajectory_key)
        )
        if stride > 1:
            query = query.where(trajectories.c.trajectory_id % stride == 0)
        rows = connection.execute(query).all()
    points = (EntropyPoint(None if row[0] is None else Difficulty(row[0]), *row[1:]) for row in rows)
    return EntropyPoints(stride, tuple(points))


def group_rates(database: Database, run_id: str) -> list[float]:
    """Return the correctness rate of the fresh rollouts of every group that is not superseded.

    Raises:
        UnknownRunError: There is no such run.
    """
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(func.max(trajectories.c.correctness_rate))
            .where(*judged.conditions)
            .group_by(trajectories.c.step, trajectories.c.attempt, trajectories.c.group_position)
        )
        return list(connection.scalars(query))


def _code_line(group: str, has_code: bool, parts: list[_Sums]) -> CodeLine:
    sums = [sum(values) for values in zip(*parts, strict=True)] if parts else [0] * 7
    num_trajectories, num_entropies, entropy, num_judged, num_valid, num_by_judge, num_valid_by_judge = sums
    mean_entropy = entropy / num_entropies if num_entropies else math.nan
    cot_correctness = num_valid / num_judged if num_judged else math.nan
    by_judge = (int(num_by_judge), int(num_valid_by_judge))
    return CodeLine(group, has_code, int(num_trajectories), mean_entropy, int(num_judged), cot_correctness, *by_judge)
