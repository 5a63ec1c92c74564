"""The history of a trajectory, its group, and the results of its question over steps and runs."""

from collections import Counter
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Double, and_, case, cast, func, select, true

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import MOVES
from exgrpo.db.rows.trajectories import (
    MAX_CHARACTERS,
    MAX_MEMBERS,
    AttemptedRow,
    GroupMemberRow,
    LineageRow,
    QuestionRow,
    ReplayCountRow,
)
from exgrpo.db.statistics import mean_of_sums
from exgrpo.db.tables import models
from exgrpo.db.tables.correctness import is_correct_column
from exgrpo.db.tables.shared_reads import find_run_key

LINEAGE_MOVES = (*MOVES, "emptied")
"""Kinds of events that say where the trajectory's question is afterwards."""
MAX_RUNS = 8


def get_question(database: Database, run_id: str, question_index: int) -> QuestionRow | None:
    """Return a training question of a run, or None if there is none of this index."""
    questions = models.questions
    query = (
        select(*(questions.c[name] for name in QuestionRow.__dataclass_fields__))
        .join(models.runs)
        .where(
            models.runs.c.run_id == run_id,
            questions.c.question_set == "training",
            questions.c.question_index == question_index,
        )
    )
    row = next(iter(database.rows(query)), None)
    return None if row is None else QuestionRow(*row)


def lineage(
    database: Database, run_id: str, trajectory_id: int, question_index: int, rollout_step: int
) -> list[LineageRow]:
    """Return the events of a trajectory and of its question's buckets since it was generated, in order."""
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        if run_key is None:
            return []
        rows = _changes(connection, run_key, trajectory_id, question_index, rollout_step)
        replays = _replays(connection, run_key, trajectory_id)
        scored = {row.step: row for row in _scores(connection, run_key, trajectory_id, question_index)}
    for replay in replays:
        seen = scored.pop(replay.step, None)
        rows.append(replace(replay, num_candidates=seen.num_candidates if seen else None))
    rows += scored.values()
    order = {kind: index for index, kind in enumerate(("scored", "replayed", "moved", "inserted", "duplicate"))}
    return sorted(rows, key=lambda row: (row.step, order.get(row.kind, len(order))))


def most_replayed(database: Database, run_id: str, limit: int = 50) -> list[ReplayCountRow]:
    """Return the run's trajectories with the most replays, most first."""
    replays, num_replays = models.replays, func.count().label("num_replays")
    query = (
        select(replays.c.trajectory_id, replays.c.question_index, num_replays)
        .join(models.runs)
        .where(models.runs.c.run_id == run_id, ~replays.c.is_external)
        .group_by(replays.c.trajectory_id, replays.c.question_index)
        .order_by(num_replays.desc(), replays.c.trajectory_id)
        .limit(limit)
    )
    return [ReplayCountRow(*row) for row in database.rows(query)]


def group_members(
    database: Database, run_id: str, step: int, question_index: int, group_position: int | None = None
) -> list[GroupMemberRow]:
    """Return the K trajectories of a question in a step, the first `MAX_MEMBERS`, the replayed one last.

    Where a step has several groups of the question, `group_position` says which.
    """
    trajectories, texts, replays = models.trajectories, models.trajectory_texts, models.replays
    text_columns = [
        func.substr(texts.c.text, 1, MAX_CHARACTERS).label("text"),
        func.length(texts.c.text).label("num_characters"),
    ]
    others = {"rollout_step", "is_replayed", "is_correct", *(column.name for column in text_columns)}
    names = [name for name in GroupMemberRow.__dataclass_fields__ if name not in others]
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        fresh = (
            select(
                trajectories.c.step.label("rollout_step"), is_correct_column().label("is_correct"), *text_columns,
                *(trajectories.c[name] for name in names),
            )
            .join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
            .where(
                trajectories.c.run_key == run_key,
                trajectories.c.step == step,
                trajectories.c.question_index == question_index,
                true() if group_position is None else trajectories.c.group_position == group_position,
            )
            .order_by(trajectories.c.group_slot)
            .limit(MAX_MEMBERS)
        )  # fmt: skip
        members = [GroupMemberRow(**row, is_replayed=False) for row in connection.execute(fresh).mappings()]
        is_rollout = and_(
            trajectories.c.run_key == replays.c.run_key,
            trajectories.c.trajectory_id == replays.c.trajectory_id,
        )
        replayed = (
            select(
                *(replays.c[name] for name in names if name not in {"verdict", "is_valid"}),
                (replays.c.reward >= 1.0).label("is_correct"), replays.c.rollout_step, trajectories.c.verdict,
                trajectories.c.is_valid, *text_columns,
            )
            .join_from(replays, trajectories, is_rollout, isouter=True)
            .join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key, isouter=True)
            .where(replays.c.run_key == run_key, replays.c.step == step, replays.c.question_index == question_index)
        )  # fmt: skip
        for row in connection.execute(replayed).mappings():
            members.append(GroupMemberRow(**{**row, "verdict": row["verdict"] or ""}, is_replayed=True))
    return members


def attempts_at_question(database: Database, question_id: str) -> list[AttemptedRow]:
    """Return the results of a question by step and group, in the newest `MAX_RUNS` runs that have it.

    Rollouts of which nobody knows whether they are correct are left out.
    """
    trajectories, runs, questions, replays = models.trajectories, models.runs, models.questions, models.replays
    indices = (
        select(questions.c.run_key, questions.c.question_index)
        .where(questions.c.question_id == question_id, questions.c.question_set == "training")
        .order_by(questions.c.run_key.desc())
        .limit(MAX_RUNS)
        .subquery()
    )
    is_here = and_(
        trajectories.c.run_key == indices.c.run_key, trajectories.c.question_index == indices.c.question_index
    )
    step_columns = (trajectories.c.run_key, trajectories.c.step, trajectories.c.question_index)
    is_correct = is_correct_column()
    # Grouped before the runs are joined: SQLite would keep a run's specification for each trajectory.
    entropy, length = trajectories.c.mean_entropy, cast(trajectories.c.num_tokens, Double)
    sums = [func.coalesce(func.sum(part), 0.0) for value in (entropy, length) for part in (value, value * value)]
    groups = (
        select(
            *step_columns,
            func.count().label("num_rollouts"),
            func.count().filter(is_correct).label("num_correct"),
            func.count(entropy).label("num_entropies"),
            *(item.label(f"sum_{place}") for place, item in enumerate(sums)),
        )
        .join_from(indices, trajectories, is_here)
        .where(is_correct.is_not(None))
        .group_by(*step_columns, trajectories.c.group_position)
        .subquery()
    )
    num_replays = (
        select(func.count())
        .where(*(replays.c[column.name] == groups.c[column.name] for column in step_columns))
        .scalar_subquery()
    )
    query = (
        select(
            runs.c.run_id, runs.c.name, runs.c.spec, groups.c.step,
            groups.c.num_rollouts, groups.c.num_correct, groups.c.num_entropies, num_replays,
            *(groups.c[f"sum_{place}"] for place in range(len(sums))),
        )
        .join_from(groups, runs, runs.c.run_key == groups.c.run_key)
        .order_by(runs.c.run_key.desc(), groups.c.step)
    )  # fmt: skip
    rows = database.rows(query)
    return [_attempted(*row) for row in rows]


def _attempted(run_id: str, name: str, spec: dict[str, Any], step: int, *numbers: Any) -> AttemptedRow:  # noqa: ANN401 - SQL numbers
    num_rollouts, num_correct, num_entropies, num_replays, *sums = numbers
    model = str(spec.get("model", {}).get("source", ""))
    (entropy, entropy_half), (length, length_half) = (
        mean_of_sums(num_entropies, *sums[:2]),
        mean_of_sums(num_rollouts, *sums[2:]),
    )
    return AttemptedRow(
        run_id, name, model, step, num_rollouts, num_correct, entropy, length, entropy_half, length_half,
        bool(num_replays),
    )  # fmt: skip


def _changes(
    connection: Connection, run_key: int, trajectory_id: int, question_index: int, rollout_step: int
) -> list[LineageRow]:
    changes = models.buffer_changes
    is_own = (changes.c.trajectory_id == trajectory_id) | changes.c.trajectory_id.is_(None)
    is_emptied = (changes.c.kind == "evicted") & changes.c.bucket_to.is_(None)
    kind = case((is_own, changes.c.kind), else_="emptied")
    query = (
        select(changes.c.step, kind, changes.c.bucket_from, changes.c.bucket_to)
        .where(
            changes.c.run_key == run_key,
            changes.c.question_index == question_index,
            changes.c.step >= rollout_step,
            changes.c.kind != "replayed",
            is_own | is_emptied,
        )
        .order_by(changes.c.step, changes.c.position)
    )
    return [LineageRow(*row) for row in connection.execute(query)]


def _scores(connection: Connection, run_key: int, trajectory_id: int, question_index: int) -> list[LineageRow]:
    table, drawn = models.candidates, models.selections
    steps = select(drawn.c.step).where(drawn.c.run_key == run_key, drawn.c.question_index == question_index)
    is_candidate = and_(
        table.c.run_key == run_key,
        table.c.step.in_(steps),
        table.c.question_index == question_index,
    )
    rows = connection.execute(
        select(table.c.step, table.c.trajectory_id, table.c.entropy, table.c.nll).where(is_candidate)
    ).all()
    sizes = Counter(row.step for row in rows)
    return [
        LineageRow(row.step, "scored", entropy=row.entropy, nll=row.nll, num_candidates=sizes[row.step])
        for row in rows
        if row.trajectory_id == trajectory_id
    ]


def _replays(connection: Connection, run_key: int, trajectory_id: int) -> list[LineageRow]:
    replays = models.replays
    names = ("reward", "advantage", "mean_ratio", "max_ratio", "file")
    query = select(
        replays.c.step, replays.c.mean_entropy, replays.c.mean_log_prob, *(replays.c[name] for name in names)
    ).where(replays.c.run_key == run_key, replays.c.trajectory_id == trajectory_id)
    return [
        LineageRow(step, "replayed", entropy=entropy, nll=-log_prob, **dict(zip(names, values, strict=True)))
        for step, entropy, log_prob, *values in connection.execute(query)
    ]
