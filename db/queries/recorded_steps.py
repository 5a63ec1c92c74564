"""What a step recorded, for executing it again."""

from collections.abc import Collection

import numpy as np
from sqlalchemy import select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import ancestry, moves
from exgrpo.db.rows.replays import BufferChangeRow, StepTrajectoryRow
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.shared_reads import require_run_key
from exgrpo_core.types import Question


def step_trajectories(database: Database, run_id: str, step: int) -> list[StepTrajectoryRow]:
    """Return a step's trajectories by group: the fresh ones as they were rolled out, then what was replayed."""
    fresh, replays = models.trajectories, models.replays
    names = ("group_position", "question_index", "trajectory_id", "reward", "advantage", "file")
    both = (*names, "num_tokens", "mean_entropy")
    with database.read() as connection:
        run_key = require_run_key(connection, run_id)
        rolled_out = (
            select(*(fresh.c[name] for name in both), fresh.c.verdict, fresh.c.is_truncated, fresh.c.extra)
            .where(fresh.c.run_key == run_key, fresh.c.step == step)
            .order_by(fresh.c.group_position, fresh.c.group_slot)
        )
        replayed = (
            select(
                *(replays.c[name] for name in both), replays.c.rollout_step, replays.c.is_external, replays.c.mean_ratio
            )
            .where(replays.c.run_key == run_key, replays.c.step == step)
            .order_by(replays.c.group_position)
        )
        found = [row._asdict() for row in connection.execute(rolled_out)]
        rows = [StepTrajectoryRow(**row | {"extra": row["extra"] or {}}) for row in found]
        rows += [StepTrajectoryRow(is_replayed=True, **row._asdict()) for row in connection.execute(replayed)]
    return sorted(rows, key=lambda row: row.group_position)


def texts_of(database: Database, run_id: str, step: int) -> dict[int, str]:
    """Return the responses that a step rolled out, by trajectory."""
    fresh, texts = models.trajectories, models.trajectory_texts
    with database.read() as connection:
        query = (
            select(fresh.c.trajectory_id, texts.c.text)
            .join_from(fresh, texts, fresh.c.trajectory_key == texts.c.trajectory_key)
            .where(fresh.c.run_key == require_run_key(connection, run_id), fresh.c.step == step)
        )
        return {row.trajectory_id: row.text for row in connection.execute(query)}


def questions_of(database: Database, run_id: str, question_indices: Collection[int]) -> dict[int, Question]:
    """Return training questions as recorded, by index; their prompts have no tokens."""
    table = models.questions
    no_tokens = np.empty(0, dtype=np.int32)
    names = ("question_index", "question_id", "prompt_text", "answer", "details")
    with database.read() as connection:
        query = select(*(table.c[name] for name in names)).where(
            table.c.run_key == require_run_key(connection, run_id),
            table.c.question_set == "training",
            one_of(table.c.question_index, question_indices),
        )
        return {
            index: Question(index, name, no_tokens, prompt, answer, details)
            for index, name, prompt, answer, details in connection.execute(query)
        }


def rewards_at_rollout(database: Database, run_id: str, trajectory_ids: Collection[int]) -> dict[int, float]:
    """Return the rewards that trajectories of the run or of what it branched from had when they were rolled out."""
    fresh = models.trajectories
    found: dict[int, float] = {}
    with database.read() as connection:
        for run_key, until in ancestry(connection, run_id):
            query = select(fresh.c.trajectory_id, fresh.c.reward).where(
                fresh.c.run_key == run_key, fresh.c.step <= until, one_of(fresh.c.trajectory_id, trajectory_ids)
            )
            found = {row.trajectory_id: row.reward for row in connection.execute(query)} | found
    return found


def changes_of(database: Database, run_id: str, step: int) -> list[BufferChangeRow]:
    """Return the changes of the buffer in a step, in order."""
    changes = models.buffer_changes
    names = BufferChangeRow.__dataclass_fields__
    with database.read() as connection:
        query = (
            select(*(changes.c[name] for name in names))
            .where(changes.c.run_key == require_run_key(connection, run_id), changes.c.step == step)
            .order_by(changes.c.position)
        )
        return [BufferChangeRow(*row) for row in connection.execute(query)]


def moves_until(database: Database, run_id: str, step: int) -> list[tuple[int, int | None, int]]:
    """Return (question, bucket, step) of every move up to a step, in order.

    The bucket is None where the question retired, -1 where its last trajectory was evicted.
    """
    with database.read() as connection:
        return [
            (row.question_index, -1 if row.kind == "evicted" and row.bucket_to is None else row.bucket_to, row.step)
            for run_key, until in reversed(ancestry(connection, run_id, step))
            for row in connection.execute(moves(run_key, until))
        ]
