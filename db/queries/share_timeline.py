"""How code and invalid chains spread over a run: their share of rollouts, buffer and replays, step by step."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Subquery, and_, func, select

from db.connections.session import Database
from db.queries.buffer import ancestry
from db.queries.verdicts import JudgedTrajectories, judged_by_oracle, judged_trajectories
from db.rows.analysis import ShareLine
from db.tables import models

_Lineage = Sequence[tuple[int, int]]
"""(run, last step that counts): the run itself and those that it branched from."""


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

    Raises:
        UnknownRunError: There is no such run.
    """
    rollouts, successes, replays, changes = _Counts(), _Counts(), _Counts(), _Counts()
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        lineage = ancestry(connection, run_id)
        _add_fresh(connection, _with_property(judged, spreading), rollouts, successes)
        for index, (run_key, until) in enumerate(lineage):
            if index and spreading is Spreading.INVALID and judge_run_id is not None:
                break  # the judge saw this run only
            born = _with_property(judged if index == 0 else judged_by_oracle(run_key), spreading)
            _add_replayed(connection, lineage[0][0], born, until, replays)
            _add_stored(connection, lineage[: index + 1], born, changes)
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
            (trajectories.c.reward >= 1.0).label("is_correct"),
            has_property.label("has_property"),
        )
        .select_from(judged.source)
        .where(*judged.conditions, known.is_not(None))
        .subquery()
    )


def _add_fresh(connection: Connection, born: Subquery, rollouts: _Counts, successes: _Counts) -> None:
    query = select(
        born.c.step,
        func.count(),
        func.count().filter(born.c.has_property),
        func.count().filter(born.c.is_correct),
        func.count().filter(and_(born.c.is_correct, born.c.has_property)),
    ).group_by(born.c.step)
    for step, num_known, num_with_property, num_correct, num_with_property_correct in connection.execute(query):
        rollouts.add(step, num_known, num_with_property)
        successes.add(step, num_correct, num_with_property_correct)


# SQLite would apply `step <= until` to the trajectories' step and scan that range instead of using the index; `+ 0`
# prevents it.
def _add_replayed(connection: Connection, run_key: int, born: Subquery, until: int, replayed: _Counts) -> None:
    replays = models.replays
    query = (
        select(replays.c.step, func.count(), func.count().filter(born.c.has_property))
        .join_from(
            replays, born, and_(born.c.step == replays.c.born_step, born.c.trajectory_id == replays.c.trajectory_id)
        )
        .where(replays.c.run_key == run_key, ~replays.c.is_superseded, ~replays.c.is_external)
        .where(replays.c.born_step + 0 <= until)
        .group_by(replays.c.step)
    )
    for row in connection.execute(query):
        replayed.add(*row)


def _add_stored(connection: Connection, lineage: _Lineage, born: Subquery, changes: _Counts) -> None:
    """Count what the lineage's last run stored, from its step to the retirement of its question."""
    retired = _retired(connection, lineage)
    stored = models.buffer_changes
    run_key, until = lineage[-1]
    query = (
        select(stored.c.step, stored.c.question_index, func.count(), func.count().filter(born.c.has_property))
        .join_from(stored, born, and_(born.c.step == stored.c.step, born.c.trajectory_id == stored.c.trajectory_id))
        .where(stored.c.run_key == run_key, stored.c.kind == "inserted", ~stored.c.is_superseded)
        .where(stored.c.step + 0 <= until)
        .group_by(stored.c.step, stored.c.question_index)
    )
    for step, question_index, num_known, num_with_property in connection.execute(query):
        changes.add(step, num_known, num_with_property)
        retired_at = next((at for at in retired.get(question_index, ()) if at >= step), None)
        if retired_at is not None:
            changes.add(retired_at, -num_known, -num_with_property)


def _retired(connection: Connection, lineage: _Lineage) -> dict[int, list[int]]:
    """Return the steps in which each question was retired, in order."""
    changes = models.buffer_changes
    retired: dict[int, list[int]] = {}
    for run_key, until in lineage:
        query = (
            select(changes.c.question_index, changes.c.step)
            .where(changes.c.run_key == run_key, changes.c.step <= until, changes.c.kind == "retired")
            .where(~changes.c.is_superseded)
        )
        for question_index, step in connection.execute(query):
            retired.setdefault(question_index, []).append(step)
    return {question_index: sorted(steps) for question_index, steps in retired.items()}


def _steps_of(connection: Connection, run_key: int) -> list[int]:
    steps = models.steps
    query = select(steps.c.step).where(steps.c.run_key == run_key, ~steps.c.is_superseded).order_by(steps.c.step)
    return list(connection.scalars(query))
