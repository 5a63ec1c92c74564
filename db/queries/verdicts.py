"""Trajectories with the verdict that counts: a user's, else a judge's or that of the task's oracle."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    FromClause,
    Subquery,
    and_,
    case,
    func,
    literal,
    null,
    select,
)

from exgrpo.db.rows.chains_of_thought import EASY_ABOVE, HARD_UP_TO, Difficulty
from exgrpo.db.rows.judging import JudgedOrder, JudgedSortKey
from exgrpo.db.tables import models
from exgrpo.db.tables.shared_reads import require_run_key
from exgrpo_core.recording.rows import VoteOutcome


@dataclass(frozen=True, slots=True)
class JudgedTrajectories:
    """The trajectories of a run, to select from.

    `verdict` is the one that counts, `by_judge` the judge's (or the oracle's) only, `user` a user's only; each may be
    null. `votes` are the judge's, null for the oracle.
    """

    source: FromClause
    conditions: tuple[ColumnElement[bool], ...]
    verdict: ColumnElement[bool | None]
    by_judge: ColumnElement[bool | None]
    user: ColumnElement[bool | None]
    votes: Subquery | None


def judged_trajectories(connection: Connection, run_id: str, judge_run_id: str | None) -> JudgedTrajectories:
    """Return a run's trajectories with the verdicts of a judge's job, or without one of the task's oracle."""
    run_key = require_run_key(connection, run_id)
    if judge_run_id is None:
        return judged_by_oracle(run_key)
    votes = votes_by_trajectory(require_run_key(connection, judge_run_id), run_id)
    return _with_overrides(run_key, verdict_of(votes.c.balance), votes)


def judged_by_oracle(run_key: int) -> JudgedTrajectories:
    """Return a run's trajectories with the verdicts of the task's oracle."""
    return _with_overrides(run_key, models.trajectories.c.is_valid, None)


def votes_by_trajectory(judge_key: int, run_id: str) -> Subquery:
    """Return one judge's votes on a run, summed by trajectory; `balance` is valid minus invalid ones."""
    votes = models.judge_votes
    num_valid = func.count().filter(votes.c.outcome == VoteOutcome.VALID)
    num_invalid = func.count().filter(votes.c.outcome == VoteOutcome.INVALID)
    return (
        select(
            votes.c.source_attempt.label("attempt"),
            votes.c.trajectory_id,
            num_valid.label("num_valid"),
            num_invalid.label("num_invalid"),
            func.count().label("num_votes"),
            (num_valid - num_invalid).label("balance"),
            func.max(votes.c.reason).label("reason"),
        )
        .where(votes.c.run_key == judge_key, votes.c.source == run_id, votes.c.trajectory_id.is_not(None))
        .group_by(votes.c.source_attempt, votes.c.trajectory_id)
        .subquery()
    )


def verdict_of(balance: ColumnElement[int]) -> ColumnElement[bool | None]:
    """Return the majority's verdict, null for a tie and without a decided vote."""
    return case((balance > 0, literal(True, Boolean)), (balance < 0, literal(False, Boolean)), else_=null())


def in_order(judged: JudgedTrajectories, order: JudgedOrder | None) -> list[ColumnElement[Any]]:
    """Return what sorts trajectories: newest first without an order."""
    trajectories = models.trajectories
    newest = trajectories.c.trajectory_key.desc()
    if order is None:
        return [newest]
    columns: dict[JudgedSortKey, ColumnElement[Any]] = {
        JudgedSortKey.STEP: trajectories.c.step,
        JudgedSortKey.QUESTION: trajectories.c.question_index,
        JudgedSortKey.ENTROPY: trajectories.c.mean_entropy,
        JudgedSortKey.CODE: trajectories.c.has_code,
        JudgedSortKey.JUDGE: judged.by_judge,
        JudgedSortKey.ORACLE: trajectories.c.is_valid,
        JudgedSortKey.USER: judged.user,
    }
    column = columns[order.key]
    return [(column.desc() if order.is_descending else column.asc()).nulls_last(), newest]


def difficulty_column() -> ColumnElement[str | None]:
    """Return the paper's group of a trajectory's question in its step: hard (0, 25%], medium (25%, 75%], else easy.

    It is null if all or no rollouts were correct.
    """
    rate = models.trajectories.c.correctness_rate
    return case(
        (rate.is_(None) | (rate <= 0.0) | (rate >= 1.0), null()),
        (rate > EASY_ABOVE, literal(Difficulty.EASY.value)),
        (rate <= HARD_UP_TO, literal(Difficulty.HARD.value)),
        else_=literal(Difficulty.MEDIUM.value),
    )


def _with_overrides(run_key: int, by_judge: ColumnElement[bool | None], votes: Subquery | None) -> JudgedTrajectories:
    trajectories, overrides = models.trajectories, models.verdict_overrides
    is_it = and_(
        overrides.c.run_key == trajectories.c.run_key,
        overrides.c.attempt == trajectories.c.attempt,
        overrides.c.trajectory_id == trajectories.c.trajectory_id,
    )
    source: FromClause = trajectories.outerjoin(overrides, is_it)
    if votes is not None:
        is_on_it = and_(
            votes.c.attempt == trajectories.c.attempt, votes.c.trajectory_id == trajectories.c.trajectory_id
        )
        source = source.outerjoin(votes, is_on_it)
    verdict = func.coalesce(overrides.c.is_valid, by_judge, type_=Boolean)
    conditions = (trajectories.c.run_key == run_key,)
    return JudgedTrajectories(source, conditions, verdict, by_judge, overrides.c.is_valid, votes)
