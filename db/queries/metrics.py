"""Curves: metrics by step, thinned with their extremes kept, evaluations, training time, ratios, counts of rewards."""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Double, RowMapping, Text, cast, func, or_, select, type_coerce

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import FAR_STEP, ancestry
from exgrpo.db.rows.runs import EvaluationRow, MetricPoint, RewardCountRow, StepNotice
from exgrpo.db.statistics import Difference, paired_difference
from exgrpo.db.tables import models
from exgrpo.db.tables.shared_reads import Curve, Steps, Values, find_run_key, question_rates, read_curves, read_newest
from exgrpo_core.types import PART_PREFIX

STEP_SECONDS = "seconds/step"
WHOLE_REWARD = "reward"
MAX_REWARD_BINS = 30


def metric_series(
    database: Database, run_id: str, keys: Sequence[str], max_points: int | None = 1000, *, with_parents: bool = False
) -> dict[str, list[MetricPoint]]:
    """Return at most `max_points` recorded values of each metric: of each stretch of steps the lowest and the highest.

    None returns all of them.
    The first and the newest value are always included. A metric that was never recorded has no points. With
    `with_parents` a branch has the points of the steps before it, too.
    """
    with database.read() as connection:
        curves = _curves(connection, run_id, keys, with_parents=with_parents)
    return {key: _thinned(curve, max_points) for key, curve in curves.items()}


def last_metrics(database: Database, run_id: str) -> dict[str, float]:
    """Return the newest value of every metric that was recorded."""
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        return {} if run_key is None else read_newest(connection, run_key)


def list_evaluations(database: Database, run_id: str, *, with_parents: bool = False) -> list[EvaluationRow]:
    """Return a run's held-out scores by step. If a step was evaluated again, only its newest score is there.

    Those before a branch are among them if `with_parents`.
    """
    with database.read() as connection:
        rows = _evaluations(connection, run_id, with_parents=with_parents)
    names = ("step", "question_set", "samples_per_question", "avg_at_n", "standard_error", "pass_at_n")
    return [EvaluationRow(**{name: row[name] for name in names}, num_questions=len(row["num_correct"])) for row in rows]


def step_notices(database: Database, run_id: str, limit: int = 3) -> list[StepNotice]:
    """Return what the newest steps with a notice said, newest first."""
    steps = models.steps
    with database.read() as connection:
        query = select(steps.c.step, steps.c.notices).where(
            steps.c.run_key == find_run_key(connection, run_id),
            func.length(cast(steps.c.notices, Text)) > len("[]"),
        )
        rows = connection.execute(query.order_by(steps.c.step.desc()).limit(limit)).all()
    return [StepNotice(row.step, text) for row in rows for text in row.notices]


def clock_seconds(
    database: Database, run_id: str, max_points: int = 1000, *, with_parents: bool = False
) -> list[MetricPoint]:
    """Return the seconds from a run's first step to about `max_points` of its steps, the last always, pauses counted.

    The first step counts from its start, as far as its time was recorded. A clock that is set back counts as no time.
    `with_parents` the clock of a branch goes on from its parent's, without the time between them.
    """
    with database.read() as connection:
        lineage = _lineage(connection, run_id, with_parents=with_parents)
        points = [point for run_key, until in lineage for point in _clock_of(connection, run_key, until)]
    if not points:
        return []
    stride = max(1, -(-points[-1][0] // max_points))
    clock = itertools.accumulate(seconds for _, seconds in points)
    return [
        MetricPoint(step, at)
        for (step, _), at in zip(points, clock, strict=True)
        if step % stride == 0 or step == points[-1][0]
    ]


def _clock_of(connection: Connection, run_key: int, until: int) -> list[tuple[int, float]]:
    """Return the steps of one run, each with the seconds since the step before it."""
    steps = models.steps
    query = select(steps.c.step, steps.c.at).where(steps.c.run_key == run_key, steps.c.step <= until)
    rows = connection.execute(query.order_by(steps.c.step)).all()
    if not rows:
        return []
    values = read_curves(connection, run_key, [STEP_SECONDS], models.metrics.c.step == rows[0].step)[
        STEP_SECONDS
    ].values
    first = float(values[0]) if len(values) and np.isfinite(values[0]) else 0.0
    between = [max(0.0, (row.at - last.at).total_seconds()) for last, row in itertools.pairwise(rows)]
    return [(row.step, seconds) for row, seconds in zip(rows, [first, *between], strict=True)]


def training_seconds(database: Database, run_id: str, max_points: int = 1000) -> list[MetricPoint]:
    """Return the seconds that a run's steps took together, up to about `max_points` of them and the last one.

    The steps before a branch count. Time between steps (evaluations, checkpoints, waiting for a resume) does not.
    """
    with database.read() as connection:
        steps, values = _curves(connection, run_id, [STEP_SECONDS], with_parents=True)[STEP_SECONDS]
    if not len(steps):
        return []
    is_wanted = (steps % -(-steps[-1] // max_points) == 0) | (steps == steps[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        seconds = np.nancumsum(values)
    return [MetricPoint(*point) for point in zip(steps[is_wanted].tolist(), seconds[is_wanted].tolist(), strict=True)]


def held_out_gain(database: Database, run_id: str) -> Difference | None:
    """Return the gain on held-out questions since the first evaluation, of a branch since that of its first parent.

    None of fewer than two evaluations, or if they have no question in common.
    """
    with database.read() as connection:
        rows = _evaluations(connection, run_id, with_parents=True)
        run_key = find_run_key(connection, run_id)
    held_out = [row for row in rows if row["question_set"] == "held_out"]
    if len(held_out) < 2 or held_out[-1]["run_key"] != run_key:
        return None
    first, last = question_rates(held_out[0]), question_rates(held_out[-1])
    both = [question for question in first if question in last]
    if not both:
        return None
    return paired_difference([([first[question] for question in both], [last[question] for question in both])])


def mean_step_seconds(database: Database, run_id: str) -> float | None:
    """Return the mean time of the run's own steps; None without any."""
    table = models.metrics
    query = select(func.avg(table.c.value)).where(table.c.name == STEP_SECONDS)
    with database.read() as connection:
        return connection.scalar(query.where(table.c.run_key == find_run_key(connection, run_id)))


def replay_ratios(database: Database, run_id: str, max_steps: int = 150) -> dict[int, list[float]]:
    """Return the mean importance ratio of each replayed trajectory by step, of about `max_steps` steps.

    Steps are evenly spread over those that replayed, the last one included.
    """
    replays = models.replays
    with database.read() as connection:
        is_current = (replays.c.run_key == find_run_key(connection, run_id),)
        first, last = connection.execute(
            select(func.min(replays.c.step), func.max(replays.c.step)).where(*is_current)
        ).one()
        if last is None:
            return {}
        stride = -(-(last - first + 1) // max_steps)
        query = select(replays.c.step, replays.c.mean_ratio).where(
            *is_current, replays.c.mean_ratio.is_not(None), or_(replays.c.step % stride == 0, replays.c.step == last)
        )
        ratios: dict[int, list[float]] = {}
        for step, ratio in connection.execute(query.order_by(replays.c.step)):
            ratios.setdefault(step, []).append(ratio)
        return ratios


def reward_counts(database: Database, run_id: str, steps: int = 60) -> list[RewardCountRow]:
    """Return histograms of the rewards of each step's fresh responses, and of the parts of rewards.

    Each of at most `MAX_REWARD_BINS` different values is a bin of its own; more are counted in as many even bins.
    """
    of_run, table = models.steps.c, models.trajectories
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        known = connection.scalars(
            select(of_run.step).where(of_run.run_key == run_key).order_by(of_run.step.desc())
        ).all()
        query = select(table.c.step, type_coerce(table.c.reward, Double), table.c.extra).where(
            table.c.run_key == run_key, table.c.step.in_(known[:: -(-len(known) // steps) or 1]),
        )  # fmt: skip
        found: dict[str, list[tuple[int, float]]] = {}
        for step, reward, extra in connection.execute(query):
            parts = {name: value for name, value in (extra or {}).items() if name.startswith(PART_PREFIX)}
            for name, value in ({WHOLE_REWARD: reward} | parts).items():
                if isinstance(value, int | float) and np.isfinite(value):
                    found.setdefault(name.removeprefix(PART_PREFIX), []).append((step, value))
    return [row for part, values in found.items() for row in _binned(part, np.array(values, np.float64))]


def _binned(part: str, rewards: npt.NDArray[np.float64]) -> list[RewardCountRow]:
    """Return the counts of rewards, (num_rewards, 2) with their steps, in order of steps and bins."""
    least, bins = np.unique(rewards[:, 1], return_inverse=True)
    largest = least
    if len(least) > MAX_REWARD_BINS:
        edges = np.linspace(least[0], least[-1], MAX_REWARD_BINS + 1)
        bins = np.searchsorted(edges[1:-1], rewards[:, 1], side="right")
        least, largest = edges[:-1], edges[1:]
    cells, counts = np.unique(np.stack([rewards[:, 0].astype(np.int64), bins]), axis=1, return_counts=True)
    return [
        RewardCountRow(step, part, float(least[place]), float(largest[place]), count)
        for (step, place), count in zip(cells.T.tolist(), counts.tolist(), strict=True)
    ]


def _lineage(connection: Connection, run_id: str, *, with_parents: bool) -> list[tuple[int, int]]:
    """Return (run, last step that counts), of a branch also those before it, first to last."""
    if with_parents:
        return ancestry(connection, run_id)[::-1]
    run_key = find_run_key(connection, run_id)
    return [] if run_key is None else [(run_key, FAR_STEP)]


def _curves(connection: Connection, run_id: str, keys: Sequence[str], *, with_parents: bool) -> dict[str, Curve]:
    step, lineage = models.metrics.c.step, _lineage(connection, run_id, with_parents=with_parents)
    parts = [read_curves(connection, run_key, keys, step <= until) for run_key, until in lineage]
    return {
        key: Curve(
            np.concatenate([np.empty(0, np.int64), *(part[key].steps for part in parts)]),
            np.concatenate([np.empty(0, np.float64), *(part[key].values for part in parts)]),
        )
        for key in keys
    }


def _evaluations(connection: Connection, run_id: str, *, with_parents: bool) -> list[RowMapping]:
    """Return the newest evaluation of each step and set of questions, in their order."""
    table = models.evaluations
    newest = {
        (row["step"], row["question_set"]): row
        for run_key, until in _lineage(connection, run_id, with_parents=with_parents)
        for row in connection.execute(
            select(table).where(table.c.run_key == run_key, table.c.step <= until).order_by(table.c.attempt)
        ).mappings()
    }
    return [newest[key] for key in sorted(newest)]


def _thinned(curve: Curve, max_points: int | None) -> list[MetricPoint]:
    steps, values = curve
    if max_points is not None and len(steps) > max_points:
        kept = _extremes(steps, values, max_points)
        steps, values = steps[kept], values[kept]
    return [MetricPoint(step, value) for step, value in zip(steps.tolist(), values.tolist(), strict=True)]


def _extremes(steps: Steps, values: Values, max_points: int) -> npt.NDArray[np.intp]:
    """Return the points to keep: both ends, and the lowest and highest value of each stretch of steps."""
    num_stretches = max(1, max_points // 2 - 1)
    stretches = ((steps - steps[0]) * num_stretches / (steps[-1] - steps[0] + 1)).astype(np.int64)
    # NaN goes to the end of its stretch, and counts as highest only where there is nothing else.
    order = np.lexsort((values, np.isnan(values), stretches))
    ordered, is_number = stretches[order], ~np.isnan(values[order])
    is_first = np.diff(ordered, prepend=-1) > 0
    is_last_number = is_number & (np.append(ordered[1:] != ordered[:-1], True) | ~np.append(is_number[1:], False))
    return np.unique(np.concatenate([order[is_first | is_last_number], [0, len(steps) - 1]]))
