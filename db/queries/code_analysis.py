"""Code in trajectories, and entropy against validity: the paper's tables and figures, added up in SQL."""

import math

from sqlalchemy import func, select

from db.connections.session import Database
from db.queries.verdicts import difficulty_column, judged_trajectories
from db.rows.analysis import ALL, CodeLine, Difficulty, EntropyPoint, EntropyPoints, RuleCount, RuleHit
from db.tables import models

MAX_POINTS = 20_000
SNIPPET_CHARACTERS = 200
_Sums = tuple[float, ...]


def code_lines(database: Database, run_id: str, judge_run_id: str | None = None) -> list[CodeLine]:
    """Return entropy and CoT correctness without and with code, by difficulty and over all.

    Verdicts are those of a judge's job, or without one the oracle's; a user's own stands above both. Trajectories of
    which nobody said whether they have code are left out.

    Raises:
        UnknownRunError: There is no such run.
    """
    own = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        difficulty = difficulty_column().label("difficulty")
        query = (
            select(
                difficulty,
                own.c.has_code,
                func.count(),
                func.count(own.c.mean_entropy),
                func.coalesce(func.sum(own.c.mean_entropy), 0.0),
                func.count(judged.verdict),
                func.count().filter(judged.verdict.is_(True)),
                func.count(judged.said),
                func.count().filter(judged.said.is_(True)),
            )
            .select_from(judged.source)
            .where(*judged.conditions, own.c.reward >= 1.0, own.c.has_code.is_not(None))
            .group_by(difficulty, own.c.has_code)
        )
        found = {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(query)}
    lines = []
    for group in (*(level.value for level in Difficulty), ALL):
        for has_code in (False, True):
            parts = [sums for (name, own_code), sums in found.items() if own_code is has_code and group in (ALL, name)]
            lines.append(_code_line(group, has_code, parts))
    return lines


def rule_counts(database: Database, run_id: str) -> list[RuleCount]:
    """Return how many trajectories of a run fit which rules; none where no rules were looked for.

    Raises:
        UnknownRunError: There is no such run.
    """
    own = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                own.c.code_rules,
                own.c.has_python_block,
                func.count(),
                func.count().filter(own.c.reward >= 1.0),
            )
            .where(*judged.conditions, own.c.code_rules.is_not(None))
            .group_by(own.c.code_rules, own.c.has_python_block)
            .order_by(own.c.code_rules, own.c.has_python_block)
        )
        return [RuleCount(*row) for row in connection.execute(query)]


def list_rule_hits(database: Database, run_id: str, rule_bit: int | None, *, limit: int = 50) -> list[RuleHit]:
    """Return trajectories that fit a rule, newest first; without a bit those with a Python block.

    Raises:
        UnknownRunError: There is no such run.
    """
    own, texts = models.trajectories, models.trajectory_texts
    fits = own.c.has_python_block if rule_bit is None else own.c.code_rules.bitwise_and(rule_bit) != 0
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                own.c.trajectory_key,
                own.c.trajectory_id,
                own.c.step,
                own.c.question_index,
                (own.c.reward >= 1.0).label("is_correct"),
                judged.verdict.label("is_valid"),
                own.c.mean_entropy,
                func.substr(texts.c.text, 1, SNIPPET_CHARACTERS).label("text"),
            )
            .select_from(judged.source.join(texts, texts.c.trajectory_key == own.c.trajectory_key))
            .where(*judged.conditions, fits)
            .order_by(own.c.trajectory_key.desc())
            .limit(limit)
        )
        rows = connection.execute(query).mappings().all()
    names = [name for name in RuleHit.__dataclass_fields__ if name != "snippet"]
    return [RuleHit(**{name: row[name] for name in names}, snippet=" ".join(row["text"].split())) for row in rows]


def entropy_points(
    database: Database, run_id: str, judge_run_id: str | None = None, max_points: int = MAX_POINTS
) -> EntropyPoints:
    """Return the answer-correct trajectories of a run; of a run with more than `max_points` an even part of them.

    Raises:
        UnknownRunError: There is no such run.
    """
    own = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        is_correct = (*judged.conditions, own.c.reward >= 1.0)
        num_correct = connection.scalar(select(func.count()).select_from(own).where(*is_correct)) or 0
        stride = max(1, math.ceil(num_correct / max_points))
        query = (
            select(difficulty_column(), own.c.has_code, judged.verdict, own.c.mean_entropy, own.c.mean_log_prob)
            .select_from(judged.source)
            .where(*is_correct)
            .order_by(own.c.trajectory_key)
        )
        if stride > 1:
            query = query.where(own.c.trajectory_id % stride == 0)
        rows = connection.execute(query).all()
    points = (EntropyPoint(None if row[0] is None else Difficulty(row[0]), *row[1:]) for row in rows)
    return EntropyPoints(stride, tuple(points))


def group_rates(database: Database, run_id: str) -> list[float]:
    """Return the correctness rate of every group of a run that counts, among its fresh rollouts.

    Raises:
        UnknownRunError: There is no such run.
    """
    own = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(func.max(own.c.correctness_rate))
            .where(*judged.conditions)
            .group_by(own.c.step, own.c.attempt, own.c.group_position)
        )
        return list(connection.scalars(query))


def _code_line(group: str, has_code: bool, parts: list[_Sums]) -> CodeLine:
    sums = [sum(values) for values in zip(*parts, strict=True)] if parts else [0] * 7
    num_trajectories, num_entropies, entropy, num_judged, num_valid, num_said, num_said_valid = sums
    mean_entropy = entropy / num_entropies if num_entropies else math.nan
    cot_correctness = num_valid / num_judged if num_judged else math.nan
    by_judge = (int(num_said), int(num_said_valid))
    return CodeLine(group, has_code, int(num_trajectories), mean_entropy, int(num_judged), cot_correctness, *by_judge)
