"""The replay buffer: its buckets by step, its state at any step, and the selections from it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Select, and_, exists, func, literal, or_, select

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.replays import BufferedQuestionRow, BufferState, StoredRow, StoredTrajectory
from exgrpo.db.rows.runs import BucketRow, CandidateRow
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.shared_reads import find_run_key

MAX_GRID_STEPS = 1000
MOVES = ("moved", "retired", "evicted")
"""Kinds of changes that say where a question is afterwards."""
FAR_STEP = 2**31 - 1
"""After the last step of any run."""
_MAX_ANCESTORS = 50
MAX_SCORES = 5_000


def bucket_grid(database: Database, run_id: str, max_steps: int | None = MAX_GRID_STEPS) -> list[BucketRow]:
    """Return every bucket of about `max_steps` steps, evenly spread, None for all, in order of step and bucket."""
    counts = models.bucket_counts
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        is_current = counts.c.run_key == run_key
        first, last = connection.execute(
            select(func.min(counts.c.step), func.max(counts.c.step)).where(is_current)
        ).one()
        if last is None:
            return []
        stride = 1 if max_steps is None else max(1, math.ceil((last - first + 1) / max_steps))
        names = ("step", "bucket", "num_questions", "probability", "num_drawn", "overflow")
        query = select(*(counts.c[name] for name in names)).where(is_current).order_by(counts.c.step, counts.c.bucket)
        if stride > 1:
            query = query.where(or_(counts.c.step % stride == 0, counts.c.step == last))
        return [BucketRow(*row) for row in connection.execute(query)]


def candidates(database: Database, run_id: str, step: int) -> list[CandidateRow]:
    """Return every candidate of every selection in a step, grouped by question."""
    return _candidates(database, run_id, step, step)


def scores_by_bucket(database: Database, run_id: str, step_from: int, step_to: int) -> list[CandidateRow]:
    """Return the candidates scored in these steps, the newest `MAX_SCORES` of them."""
    return _candidates(database, run_id, step_from, step_to, MAX_SCORES)


def _candidates(
    database: Database, run_id: str, step_from: int, step_to: int, limit: int | None = None
) -> list[CandidateRow]:
    table, chosen = models.candidates, models.selections
    columns = {column.name: column for column in (*table.c, chosen.c.bucket)}
    query = (
        select(*(columns[name] for name in CandidateRow.__dataclass_fields__))
        .join(models.runs, models.runs.c.run_key == table.c.run_key)
        .join(chosen, and_(*(table.c[column.name] == column for column in chosen.primary_key)))
        .where(models.runs.c.run_id == run_id, table.c.step.between(step_from, step_to))
        .order_by(table.c.step.desc(), table.c.question_index, table.c.position)
        .limit(limit)
    )
    return [CandidateRow(*row) for row in database.rows(query)]


def ancestry(connection: Connection, run_id: str, step: int = FAR_STEP) -> list[tuple[int, int]]:
    """Return (run, last step that counts) of the run and of the runs that it branched from."""
    runs = models.runs
    lineage: list[tuple[int, int]] = []
    next_id: str | None = run_id
    while next_id is not None and len(lineage) < _MAX_ANCESTORS:
        query = select(runs.c.run_key, runs.c.parent_run_id, runs.c.branched_from_step).where(runs.c.run_id == next_id)
        row = connection.execute(query).first()
        if row is None or any(row.run_key == run_key for run_key, _ in lineage):
            break
        lineage.append((row.run_key, step))
        is_branch = row.branched_from_step is not None
        step = min(step, row.branched_from_step) if is_branch else step
        next_id = row.parent_run_id if is_branch else None
    return lineage


def moves(run_key: int, until: int = FAR_STEP) -> Select[*tuple[Any, ...]]:
    """Return the query for the moves of a run's questions up to a step, `MOVES`, in order."""
    changes = models.buffer_changes
    names = ("question_index", "step", "kind", "bucket_from", "bucket_to")
    is_one = (changes.c.run_key == run_key, changes.c.step <= until, changes.c.kind.in_(MOVES))
    return select(*(changes.c[name] for name in names)).where(*is_one).order_by(changes.c.step, changes.c.position)


def last_changes(connection: Connection, run_key: int, step: int) -> dict[int, tuple[int | None, bool]]:
    """Return where each question was up to `step`: its bucket, None outside of the buffer, and whether it retired."""
    changes = models.buffer_changes
    rank = func.row_number().over(
        partition_by=changes.c.question_index, order_by=(changes.c.step.desc(), changes.c.position.desc())
    )
    moves = (
        select(changes.c.question_index, changes.c.bucket_to, changes.c.kind, rank.label("rank"))
        .where(
            changes.c.run_key == run_key,
            changes.c.step <= step,
            changes.c.kind.in_(MOVES),
        )
        .subquery()
    )
    query = select(moves.c.question_index, moves.c.bucket_to, moves.c.kind).where(moves.c.rank == 1)
    return {index: (bucket, kind == "retired") for index, bucket, kind in connection.execute(query)}


def state_at(database: Database, run_id: str, step: int) -> BufferState:
    """Return the buffer after `step`, from the changes up to then; a branch starts from its parent's."""
    with database.read() as connection:
        last: dict[int, tuple[int | None, bool]] = {}
        for run_key, until in reversed(ancestry(connection, run_id, step)):
            last |= last_changes(connection, run_key, until)
    buckets = {index: bucket for index, (bucket, _) in last.items() if bucket is not None}
    return BufferState(buckets, frozenset(index for index, (_, is_retired) in last.items() if is_retired))


def buckets_at(database: Database, run_id: str, step: int) -> list[BucketRow]:
    """Return the buckets that a step drew from; empty if it drew nothing."""
    counts = models.bucket_counts
    names = tuple(BucketRow.__dataclass_fields__)
    query = (
        select(*(counts.c[name] for name in names))
        .join(models.runs)
        .where(models.runs.c.run_id == run_id, counts.c.step == step)
        .order_by(counts.c.bucket)
    )
    return [BucketRow(*row) for row in database.rows(query)]


def count_other_questions(database: Database, run_id: str, other_id: str) -> int:
    """Return how many training questions of a run another run does not have under the same index."""
    questions, others = models.questions.alias(), models.questions.alias()
    with database.read() as connection:
        run_key, other_key = (find_run_key(connection, name) for name in (run_id, other_id))
        is_it = and_(
            others.c.run_key == other_key,
            others.c.question_set == questions.c.question_set,
            others.c.question_index == questions.c.question_index,
            others.c.question_id == questions.c.question_id,
        )
        query = select(func.count()).where(
            questions.c.run_key == run_key,
            questions.c.question_set == "training",
            ~exists(select(literal(1)).where(is_it)),
        )
        return connection.scalar(query) or 0


def stored_trajectories(database: Database, run_id: str, step: int) -> list[StoredTrajectory]:
    """Return the trajectories that the buffer held after `step`, each with the number of its replays until then."""
    with database.read() as connection:
        counts = _replays_by_trajectory(connection, run_id, step)
        stored = _stored(connection, run_id, step)
    return [StoredTrajectory(question, born, counts[number]) for number, (question, born) in stored.items()]


def buffered_questions(
    database: Database, run_id: str, step: int, question_indices: Sequence[int]
) -> list[BufferedQuestionRow]:
    """Return these questions with what the buffer held of each after `step`."""
    questions, runs, replays = models.questions, models.runs, models.replays
    with database.read() as connection:
        stored = Counter(index for index, _ in _stored(connection, run_id, step, question_indices).values())
        drawn = (
            select(replays.c.question_index, func.count(), func.max(replays.c.step))
            .join(runs)
            .where(runs.c.run_id == run_id, replays.c.step <= step)
            .where(one_of(replays.c.question_index, question_indices))
            .group_by(replays.c.question_index)
        )
        replayed = {row[0]: (row[1], row[2]) for row in connection.execute(drawn)}
        texts = (
            select(questions.c.question_index, questions.c.prompt_text)
            .join(runs)
            .where(runs.c.run_id == run_id, questions.c.question_set == "training")
            .where(one_of(questions.c.question_index, question_indices))
            .order_by(questions.c.question_index)
        )
        rows = connection.execute(texts).all()
    return [
        BufferedQuestionRow(index, prompt, stored[index], *replayed.get(index, (0, None))) for index, prompt in rows
    ]


def stored_candidates(database: Database, run_id: str, step: int, question_indices: Sequence[int]) -> list[StoredRow]:
    """Return what the buffer held of these questions before `step`, oldest first, with the newest scores up to then."""
    trajectories = models.trajectories
    with database.read() as connection:
        lineage = ancestry(connection, run_id, step - 1)
        stored = _stored(connection, run_id, step - 1, question_indices)
        candidates: dict[int, StoredRow] = {}
        for run_key, _ in lineage:
            names = ("question_index", "trajectory_id", "step", "num_tokens", "mean_entropy", "mean_log_prob")
            rollouts = select(*(trajectories.c[name] for name in names)).where(
                trajectories.c.run_key == run_key,
                one_of(trajectories.c.question_index, question_indices),
            )
            for question, number, first, size, entropy, log_prob in connection.execute(rollouts):
                if number in stored and number not in candidates:
                    candidates[number] = StoredRow(question, number, first, first, size, entropy, -log_prob)
        for run_key, until in reversed(lineage):
            for number, row in _newest_scores(connection, run_key, until, question_indices).items():
                if number in candidates:
                    scored = {"scored_step": row.step, "entropy": row.entropy, "nll": row.nll}
                    candidates[number] = replace(candidates[number], **scored)
    return sorted(candidates.values(), key=lambda row: (row.question_index, row.trajectory_id))


def _newest_scores(connection: Connection, run_key: int, step: int, question_indices: Sequence[int]) -> dict[int, Any]:
    table, drawn = models.candidates, models.selections
    query = (
        select(table.c.trajectory_id, table.c.step, table.c.entropy, table.c.nll)
        .join_from(drawn, table, and_(*(table.c[column.name] == column for column in drawn.primary_key)))
        .where(drawn.c.run_key == run_key, drawn.c.step <= step, one_of(drawn.c.question_index, question_indices))
        .order_by(table.c.step)
    )
    return {row.trajectory_id: row for row in connection.execute(query)}


def leaves(stored: FromClause, later: FromClause, lineage: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
    """Return whether a change of a lineage takes a stored trajectory out of the buffer.

    A trajectory leaves when its question retires, or is evicted itself.
    """
    is_evicted = and_(later.c.kind == "evicted", later.c.trajectory_id == stored.c.trajectory_id)
    return and_(
        or_(*(and_(later.c.run_key == run_key, later.c.step <= until) for run_key, until in lineage)),
        later.c.question_index == stored.c.question_index,
        later.c.step >= stored.c.step,
        or_(later.c.kind == "retired", is_evicted),
    )


def _stored(
    connection: Connection, run_id: str, step: int, question_indices: Sequence[int] | None = None
) -> dict[int, tuple[int, int]]:
    """Return question and rollout step of what the run and its ancestors stored, without what left up to `step`."""
    changes, later = models.buffer_changes, models.buffer_changes.alias()
    stored: dict[int, tuple[int, int]] = {}
    lineage = ancestry(connection, run_id, step)
    for index, (run_key, until) in enumerate(lineage):
        has_left = exists(select(literal(1)).where(leaves(changes, later, lineage[: index + 1])))
        is_stored = and_(changes.c.run_key == run_key, changes.c.step <= until, changes.c.kind == "inserted")
        query = select(changes.c.trajectory_id, changes.c.question_index, changes.c.step).where(is_stored, ~has_left)
        if question_indices is not None:
            query = query.where(one_of(changes.c.question_index, question_indices))
        stored |= {number: (question, born) for number, question, born in connection.execute(query)}
    return stored


def _replays_by_trajectory(connection: Connection, run_id: str, step: int) -> Counter[int]:
    replays = models.replays
    counts: Counter[int] = Counter()
    for run_key, until in ancestry(connection, run_id, step):
        query = (
            select(replays.c.trajectory_id, func.count())
            .where(replays.c.run_key == run_key, replays.c.step <= until)
            .group_by(replays.c.trajectory_id)
        )
        counts.update({row[0]: row[1] for row in connection.execute(query)})
    return counts
