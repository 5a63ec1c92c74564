"""What each step selected for replay, for the audit."""

import itertools
from collections.abc import Sequence
from itertools import groupby, starmap
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Integer, Row, Table, and_, case, cast, func, or_, select

from db.connections.session import Database
from db.rows.replays import ReplayedGroupRow, SelectionRow, TrajectoryWeights, WeightLine, WrongChoiceRow
from db.statistics import mean_of_sums
from db.tables import models
from db.tables.column_types import Number
from db.tables.shared_reads import find_run_key
from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO

MAX_WRONG = 200
MAX_CANDIDATES = 200_000
Numbers = npt.NDArray[np.float64]


def steps_with_selections(database: Database, run_id: str) -> list[int]:
    """Return the steps that drew from the buffer, in order."""
    return _steps_in(database, run_id, models.selections)


def list_selections(database: Database, run_id: str, step: int) -> list[SelectionRow]:
    """Return a step's selections, by question, with the record of each replay."""
    chosen, replays, rolled_out = models.selections, models.replays, models.trajectories
    is_replay = and_(
        replays.c.run_key == chosen.c.run_key,
        replays.c.step == chosen.c.step,
        replays.c.attempt == chosen.c.attempt,
        replays.c.question_index == chosen.c.question_index,
    )
    rollout_file = (
        select(rolled_out.c.file)
        .where(
            rolled_out.c.run_key == chosen.c.run_key,
            rolled_out.c.question_index == chosen.c.question_index,
            rolled_out.c.trajectory_id == chosen.c.chosen_trajectory_id,
        )
        .limit(1)
        .scalar_subquery()
    )
    names = ("num_tokens", "mean_entropy", "mean_log_prob", "mean_ratio", "max_ratio", "file")
    query = (
        select(
            chosen.c.question_index, chosen.c.bucket, chosen.c.chosen_trajectory_id, replays.c.trajectory_id,
            *(replays.c[name] for name in names), rollout_file,
        )
        .join_from(chosen, models.runs)
        .join(replays, is_replay, isouter=True)
        .where(models.runs.c.run_id == run_id, chosen.c.step == step)
        .order_by(chosen.c.question_index)
    )  # fmt: skip
    # Where a method replays several trajectories of a question, the first one chosen is the one that is audited.
    by_question: dict[int, SelectionRow] = {}
    with database.read() as connection:
        for row in starmap(SelectionRow, connection.execute(query)):
            if row.chosen_trajectory_id == row.replayed_trajectory_id or row.question_index not in by_question:
                by_question[row.question_index] = row
    return list(by_question.values())


def steps_with_replays(database: Database, run_id: str) -> list[int]:
    """Return the steps that replayed something, chosen among candidates or not, in order."""
    return _steps_in(database, run_id, models.replays)


def steps_with_trajectories(database: Database, run_id: str) -> list[int]:
    """Return the steps that rolled out or replayed something, in order."""
    return sorted({*_steps_in(database, run_id, models.trajectories), *steps_with_replays(database, run_id)})


def _steps_in(database: Database, run_id: str, table: Table) -> list[int]:
    query = (
        select(table.c.step).join(models.runs).where(models.runs.c.run_id == run_id).distinct().order_by(table.c.step)
    )
    with database.read() as connection:
        return list(connection.scalars(query))


def list_replayed_groups(database: Database, run_id: str, step: int) -> list[ReplayedGroupRow]:
    """Return what a step replayed, by question."""
    replays = models.replays
    query = (
        select(replays)
        .join(models.runs)
        .where(models.runs.c.run_id == run_id, replays.c.step == step)
        .order_by(replays.c.question_index, replays.c.trajectory_id)
    )
    rows = database.rows(query)
    return [_group_row(index, list(group)) for index, group in groupby(rows, lambda row: int(row.question_index))]


def _group_row(question_index: int, rows: Sequence[Row[Any]]) -> ReplayedGroupRow:
    rollout_steps = [row.rollout_step for row in rows]
    return ReplayedGroupRow(
        question_index=question_index,
        num_trajectories=len(rows),
        num_correct=sum(row.reward > 0.0 for row in rows),
        first_rollout_step=min(rollout_steps),
        last_rollout_step=max(rollout_steps),
        is_external=any(row.is_external for row in rows),
        **{name: fmean(row._mapping[name] for row in rows) for name in ("num_tokens", "mean_entropy", "mean_ratio")},
        advantage_size=fmean(abs(row.advantage) for row in rows),
    )


def wrong_choices(database: Database, run_id: str, step_from: int = 0) -> list[WrongChoiceRow]:
    """Return a run's selections from a step on that contradict their recorded scores, at most `MAX_WRONG`.

    The worst score that was chosen is compared with the best one that was not. Without scores, as with random choice,
    only a missing choice can be wrong.
    """
    table = models.candidates
    num_chosen = func.sum(cast(case((table.c.is_chosen, 1), else_=0), Integer))
    lowest = func.min(case((~table.c.is_chosen, table.c.score)), type_=Number)
    chosen_score = func.max(case((table.c.is_chosen, table.c.score)), type_=Number)
    query = (
        select(table.c.step, table.c.question_index, num_chosen, chosen_score, lowest)
        .join(models.runs, models.runs.c.run_key == table.c.run_key)
        .where(models.runs.c.run_id == run_id, table.c.step >= step_from)
        .group_by(table.c.step, table.c.attempt, table.c.question_index)
        .having(or_(num_chosen == 0, chosen_score > lowest))
        .order_by(table.c.step, table.c.question_index)
        .limit(MAX_WRONG)
    )
    return [WrongChoiceRow(*row) for row in database.rows(query)]


def trajectory_weights(database: Database, run_id: str, shaping_beta: float) -> TrajectoryWeights:
    """Return the weights of the newest candidates: replayed, rejected for another, then replayed by age and entropy.

    Quarters are of the replayed trajectories.
    """
    scored, rolled_out = models.candidates, models.trajectories
    is_rollout = and_(
        rolled_out.c.run_key == scored.c.run_key,
        rolled_out.c.trajectory_id == scored.c.trajectory_id,
        rolled_out.c.step == scored.c.rollout_step,  # else its log-probs were refreshed
    )
    query = (
        select(
            scored.c.step - scored.c.rollout_step,
            scored.c.entropy,
            scored.c.is_chosen,
            scored.c.num_tokens,
            -scored.c.nll - rolled_out.c.mean_log_prob,
        )
        .join_from(scored, rolled_out, is_rollout)
        .where(scored.c.nll.is_not(None), rolled_out.c.mean_log_prob.is_not(None))
        .order_by(scored.c.step.desc(), scored.c.question_index, scored.c.position)
        .limit(MAX_CANDIDATES + 1)
    )
    with database.read() as connection:
        rows = connection.execute(query.where(scored.c.run_key == find_run_key(connection, run_id))).all()
    if not rows:
        return TrajectoryWeights()
    newest = np.array([tuple(row) for row in rows[:MAX_CANDIDATES]], dtype=np.float64)
    ages, entropies, is_chosen, lengths, ratios = newest.T
    replayed = is_chosen == 1.0
    groups = {"replayed": replayed, "candidates not replayed": ~replayed}
    groups |= {f"replayed, age {name}": replayed & part for name, part in _quarters(ages, replayed, ".0f")}
    groups |= {f"replayed, entropy {name}": replayed & part for name, part in _quarters(entropies, replayed, ".3f")}
    lines = (_line(name, ratios[part], lengths[part], shaping_beta) for name, part in groups.items() if part.any())
    return TrajectoryWeights(tuple(lines), len(newest), is_whole=len(newest) == len(rows))


def _quarters(values: Numbers, replayed: npt.NDArray[np.bool_], form: str) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return the quarters of the replayed ones with their ends; values that are equal stay together."""
    known = values[replayed & ~np.isnan(values)]
    if not known.size:
        return []
    ends = np.unique(np.quantile(known, (0.25, 0.5, 0.75, 1.0), method="inverted_cdf")).tolist()
    lowest = (f"up to {ends[0]:{form}}", values <= ends[0])
    return [
        lowest,
        *(
            (f"over {low:{form}} to {end:{form}}", (values > low) & (values <= end))
            for low, end in itertools.pairwise(ends)
        ),
    ]


def _line(group: str, ratios: Numbers, lengths: Numbers, shaping_beta: float) -> WeightLine:
    weights = np.exp(np.clip(ratios * lengths, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    squares = np.square(weights)
    parts = {
        "token_ratio": np.exp(ratios),
        "mean": weights,
        "shaped_mean": weights / (weights + shaping_beta),
        "square_mean": squares,
    }
    means = {
        name: mean_of_sums(values.size, float(values.sum()), float(np.square(values).sum()))
        for name, values in parts.items()
    }
    return WeightLine(
        group=group,
        num_trajectories=weights.size,
        **{name: mean for name, (mean, _) in means.items()},
        largest=float(weights.max()),
        effective_share=float(weights.sum() ** 2 / (weights.size * squares.sum())),
        half_intervals={name: half for name, (_, half) in means.items()},
    )
