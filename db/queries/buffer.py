"""The replay buffer: its buckets by step, its state at any step, and the selections from it."""

import math

from sqlalchemy import Connection, and_, func, or_, select

from db.connections.session import Database
from db.rows.runs import BucketRow, CandidateRow
from db.tables import models
from db.tables.run_lookup import find_run_key

MAX_GRID_STEPS = 1000
FAR_STEP = 2**31 - 1
"""After the last step of any run."""
_MAX_ANCESTORS = 50


def bucket_grid(database: Database, run_id: str, max_steps: int = MAX_GRID_STEPS) -> list[BucketRow]:
    """Return every bucket of about `max_steps` steps, evenly spread, in order of step and bucket."""
    counts = models.bucket_counts
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        is_current = and_(counts.c.run_key == run_key, ~counts.c.is_superseded)
        first, last = connection.execute(
            select(func.min(counts.c.step), func.max(counts.c.step)).where(is_current)
        ).one()
        if last is None:
            return []
        stride = max(1, math.ceil((last - first + 1) / max_steps))
        names = ("step", "bucket", "num_questions", "probability", "num_drawn", "deficit")
        query = select(*(counts.c[name] for name in names)).where(is_current).order_by(counts.c.step, counts.c.bucket)
        if stride > 1:
            query = query.where(or_(counts.c.step % stride == 0, counts.c.step == last))
        return [BucketRow(*row) for row in connection.execute(query)]


def buffer_at(database: Database, run_id: str, step: int) -> dict[int, int]:
    """Return the bucket of every buffered question after `step`, from the changes up to then.

    A branch starts from its parent's buffer at the step where it branched off.
    """
    with database.read() as connection:
        buckets: dict[int, int] = {}
        for run_key, until in reversed(ancestry(connection, run_id, step)):
            for question_index, bucket in last_changes(connection, run_key, until):
                if bucket is None:
                    buckets.pop(question_index, None)
                else:
                    buckets[question_index] = bucket
        return buckets


def candidates(database: Database, run_id: str, step: int) -> list[CandidateRow]:
    """Return every candidate of every selection in a step, grouped by question."""
    table, chosen = models.candidates, models.selections
    query = (
        select(table, chosen.c.bucket)
        .join(models.runs, models.runs.c.run_key == table.c.run_key)
        .join(chosen, and_(*(table.c[column.name] == column for column in chosen.primary_key)))
        .where(models.runs.c.run_id == run_id, table.c.step == step, ~table.c.is_superseded)
        .order_by(table.c.question_index, table.c.position)
    )
    names = CandidateRow.__dataclass_fields__
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    return [CandidateRow(**{name: row[name] for name in names}) for row in rows]


def ancestry(connection: Connection, run_id: str, step: int = FAR_STEP) -> list[tuple[int, int]]:
    """Return (run, last step that counts) of the run and of the runs that it branched from."""
    runs = models.runs
    lineage: list[tuple[int, int]] = []
    next_id: str | None = run_id
    while next_id is not None and len(lineage) < _MAX_ANCESTORS:
        query = select(runs.c.run_key, runs.c.parent_run_id, runs.c.branched_from_step).where(runs.c.run_id == next_id)
        row = connection.execute(query).first()
        if row is None:
            break
        lineage.append((row.run_key, step))
        is_branch = row.branched_from_step is not None
        step = min(step, row.branched_from_step) if is_branch else step
        next_id = row.parent_run_id if is_branch else None
    return lineage


def last_changes(connection: Connection, run_key: int, step: int) -> list[tuple[int, int | None]]:
    """Return the bucket that each question was last moved to up to `step`, None where it was retired."""
    changes = models.buffer_changes
    rank = func.row_number().over(
        partition_by=changes.c.question_index, order_by=(changes.c.step.desc(), changes.c.position.desc())
    )
    moves = (
        select(changes.c.question_index, changes.c.bucket_to, rank.label("rank"))
        .where(
            changes.c.run_key == run_key,
            changes.c.step <= step,
            changes.c.kind.in_(("moved", "retired")),
            ~changes.c.is_superseded,
        )
        .subquery()
    )
    query = select(moves.c.question_index, moves.c.bucket_to).where(moves.c.rank == 1)
    return [(question_index, bucket) for question_index, bucket in connection.execute(query)]
