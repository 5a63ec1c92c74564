"""Code in trajectories, and entropy against validity: the paper's tables and figures, summed in SQL."""

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Subquery, and_, func, select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import ancestry, leaves
from exgrpo.db.queries.verdicts import JudgedTrajectories, difficulty_column, judged_by_oracle, judged_trajectories
from exgrpo.db.rows.chains_of_thought import (
    ALL,
    CodeLine,
    Difficulty,
    EntropyPoint,
    EntropyPoints,
    RuleCount,
    ShareLine,
)
from exgrpo.db.statistics import mean_of_sums
from exgrpo.db.tables import models
from exgrpo.db.tables.correctness import is_correct_column

MAX_POINTS = 20_000
_Sums = tuple[float, ...]
_Lineage = Sequence[tuple[int, int]]
"""(run, last step that counts): the run itself and those that it branched from."""


def code_lines(database: Database, run_id: str, judge_run_id: str | None = None) -> list[CodeLine]:
    """Return entropy and CoT correctness without and with code, by difficulty and over all.

    Verdicts are those of a judge's job, or without one the oracle's; a user's verdict counts before both. Trajectories
    that were not checked for code are left out.
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
                func.coalesce(func.sum(trajectories.c.mean_entropy * trajectories.c.mean_entropy), 0.0),
                func.count(judged.verdict),
                func.count().filter(judged.verdict.is_(True)),
                func.count(judged.by_judge),
                func.count().filter(judged.by_judge.is_(True)),
            )
            .select_from(judged.source)
            .where(*judged.conditions, is_correct_column(), trajectories.c.has_code.is_not(None))
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
    """Return how many trajectories of a run fit which rules; empty if no rules were applied."""
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, None)
        query = (
            select(
                trajectories.c.code_rules,
                trajectories.c.has_python_block,
                func.count(),
                func.count().filter(is_correct_column()),
            )
            .where(*judged.conditions, trajectories.c.code_rules.is_not(None))
            .group_by(trajectories.c.code_rules, trajectories.c.has_python_block)
            .order_by(trajectories.c.code_rules, trajectories.c.has_python_block)
        )
        return [RuleCount(*row) for row in connection.execute(query)]


def entropy_points(
    database: Database, run_id: str, judge_run_id: str | None = None, max_points: int = MAX_POINTS
) -> EntropyPoints:
    """Return the answer-correct trajectories of a run; of more than `max_points` an evenly spread part."""
    trajectories = models.trajectories
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        is_correct = (*judged.conditions, is_correct_column())
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
    """Return the correctness rate of the fresh rollouts of every group."""
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
    sums = [sum(values) for values in zip(*parts, strict=True)] if parts else [0] * 8
    num_trajectories, num_entropies, entropy, squares, num_judged, num_valid, num_by_judge, num_valid_by_judge = sums
    num_judged, (mean_entropy, half) = int(num_judged), mean_of_sums(int(num_entropies), entropy, squares)
    return CodeLine(
        group=group,
        has_code=has_code,
        num_trajectories=int(num_trajectories),
        mean_entropy=mean_entropy,
        entropy_half_interval=half,
        num_judged=num_judged,
        cot_correctness=num_valid / num_judged if num_judged else math.nan,
        num_by_judge=int(num_by_judge),
        num_valid_by_judge=int(num_valid_by_judge),
    )


class Spreading(StrEnum):
    """A property of trajectories that may spread."""

    CODE = "code"
    INVALID = "invalid"
    """A chain of thought that is not valid."""


class _Counts:
    """Numbers of trajectories by step: those with a known property, and those that have it."""

    def __init__(self) -> None:
        self.known: Counter[int] = Counter()
        self.with_property: Counter[int] = Counter()

    def add(self, step: int, known: int, with_property: int) -> None:
        self.known[step] += known
        self.with_property[step] += with_property

    def share(self, step: int) -> float | None:
        return self.with_property[step] / self.known[step] if self.known[step] else None

    def summed_up_to(self, steps: Sequence[int]) -> "_Counts":
        """Return the sums of everything up to each of these steps, in ascending order."""
        sums, known, with_property = _Counts(), 0, 0
        pending = sorted(self.known)
        for step in steps:
            while pending and pending[0] <= step:
                known += self.known[pending[0]]
                with_property += self.with_property[pending.pop(0)]
            sums.add(step, known, with_property)
        return sums


def share_timeline(
    database: Database, run_id: str, spreading: Spreading, judge_run_id: str | None = None
) -> list[ShareLine]:
    """Return the share of trajectories with the property step by step; the buffer's is that after the step.

    Trajectories whose property is not known (from a file, or without a verdict) are left out of every share. A branch's
    buffer begins with its parent's.
    """
    rollouts, successes, replays, changes = _Counts(), _Counts(), _Counts(), _Counts()
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        lineage = ancestry(connection, run_id)
        _add_fresh(connection, _with_property(judged, spreading), rollouts, successes)
        for index, (run_key, until) in enumerate(lineage):
            if index and spreading is Spreading.INVALID and judge_run_id is not None:
                break  # the judge saw this run only
            generated = _with_property(judged if index == 0 else judged_by_oracle(run_key), spreading)
            _add_replayed(connection, lineage[0][0], generated, until, replays)
            _add_stored(connection, lineage[: index + 1], generated, changes)
        steps = _steps_of(connection, lineage[0][0])
    buffer = changes.summed_up_to(steps)
    return [
        ShareLine(step, rollouts.share(step), successes.share(step), buffer.share(step), replays.share(step))
        for step in steps
    ]


def _with_property(judged: JudgedTrajectories, spreading: Spreading) -> Subquery:
    trajectories = models.trajectories
    known: ColumnElement[bool | None] = trajectories.c.has_code if spreading is Spreading.CODE else judged.verdict
    has_property = known.is_(spreading is Spreading.CODE)
    return (
        select(
            trajectories.c.step,
            trajectories.c.trajectory_id,
            is_correct_column().label("is_correct"),
            has_property.label("has_property"),
        )
        .select_from(judged.source)
        .where(*judged.conditions, known.is_not(None))
        .subquery()
    )


def _add_fresh(connection: Connection, generated: Subquery, rollouts: _Counts, successes: _Counts) -> None:
    query = select(
        generated.c.step,
        func.count(),
        func.count().filter(generated.c.has_property),
        func.count().filter(generated.c.is_correct),
        func.count().filter(and_(generated.c.is_correct, generated.c.has_property)),
    ).group_by(generated.c.step)
    for step, num_known, num_with_property, num_correct, num_with_property_correct in connection.execute(query):
        rollouts.add(step, num_known, num_with_property)
        successes.add(step, num_correct, num_with_property_correct)


# SQLite would apply `step <= until` to the trajectories' step and scan that range instead of using the index; `+ 0`
# prevents it.
def _add_replayed(connection: Connection, run_key: int, generated: Subquery, until: int, replayed: _Counts) -> None:
    replays = models.replays
    query = (
        select(replays.c.step, func.count(), func.count().filter(generated.c.has_property))
        .join_from(
            replays,
            generated,
            and_(generated.c.step == replays.c.rollout_step, generated.c.trajectory_id == replays.c.trajectory_id),
        )
        .where(replays.c.run_key == run_key, replays.c.rollout_step + 0 <= until)
        .group_by(replays.c.step)
    )
    for row in connection.execute(query):
        replayed.add(*row)


def _add_stored(connection: Connection, lineage: _Lineage, generated: Subquery, changes: _Counts) -> None:
    """Count what the lineage's last run stored, from its step to the one in which it left."""
    stored, later = models.buffer_changes, models.buffer_changes.alias()
    run_key, until = lineage[-1]
    left_in = select(func.min(later.c.step)).where(leaves(stored, later, lineage)).scalar_subquery()
    rows = (
        select(stored.c.step, left_in.label("left_in"), generated.c.has_property)
        .join_from(
            stored,
            generated,
            and_(generated.c.step == stored.c.step, generated.c.trajectory_id == stored.c.trajectory_id),
        )
        .where(stored.c.run_key == run_key, stored.c.kind == "inserted")
        .where(stored.c.step + 0 <= until)
        .subquery()
    )
    place = (rows.c.step, rows.c.left_in)
    query = select(*place, func.count(), func.count().filter(rows.c.has_property)).group_by(*place)
    for step, left_step, num_known, num_with_property in connection.execute(query):
        changes.add(step, num_known, num_with_property)
        if left_step is not None:
            changes.add(left_step, -num_known, -num_with_property)


def _steps_of(connection: Connection, run_key: int) -> list[int]:
    steps = models.steps
    query = select(steps.c.step).where(steps.c.run_key == run_key).order_by(steps.c.step)
    return list(connection.scalars(query))
