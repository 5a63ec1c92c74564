"""What the runs list shows of a run, worked out once an ingest instead of once a page view."""

import math
from typing import Any

from sqlalchemy import Connection, func, select, update

from db import models
from db.queries.metrics import read_series
from db.rows import MetricPoint

NUM_CURVE_POINTS = 40
NUM_RECENT_STEPS = 20
"""Steps without reward, or with an empty buffer, after which the run's health says so."""
MIN_ENTROPY = 0.01
"""Nats; a policy below it has collapsed, as has one below `MIN_ENTROPY_SHARE` of its first entropy."""
MIN_ENTROPY_SHARE = 0.05


def refresh_summary(connection: Connection, run_key: int) -> None:
    """Work out a run's step, curve, newest scores and health badges from its rows that count."""
    steps, runs = models.steps, models.runs
    last_step = connection.scalar(
        select(func.max(steps.c.step)).where(steps.c.run_key == run_key, ~steps.c.is_superseded)
    )
    curve = read_series(connection, run_key, "reward/pass_at_1", NUM_CURVE_POINTS - 1)
    seconds = _recent(connection, run_key, "seconds/step", last_step or 0)
    summary = {
        "pass_at_1_curve": [_json_number(point.value) for point in curve if math.isfinite(point.value)],
        "last_pass_at_1": _json_number(curve[-1].value) if curve else None,
        "last_avg_at_n": _last_avg_at_n(connection, run_key),
        "seconds_per_step": _json_number(sum(seconds) / len(seconds)) if seconds else None,
        "health": _health(connection, run_key, last_step or 0),
    }
    values = {"summary": summary, "step": last_step or 0}
    connection.execute(update(runs).where(runs.c.run_key == run_key).values(values))


def _health(connection: Connection, run_key: int, last_step: int) -> list[str]:
    rewards = _recent(connection, run_key, "reward/mean", last_step)
    # Without rewards at all, as in supervised fine-tuning, there is nothing to miss.
    has_no_reward = last_step >= NUM_RECENT_STEPS and bool(rewards) and not any(rewards)
    badges = [
        ("no_reward", has_no_reward),
        ("empty_buffer", _has_empty_buffer(connection, run_key, last_step, has_no_reward)),
        ("entropy_collapse", _has_collapsed(connection, run_key)),
        ("not_finite", _has_step(connection, run_key, ~models.steps.c.is_finite)),
        ("all_retired", _has_all_retired(connection, run_key)),
    ]
    found = [name for name, holds in badges if holds]
    return [name for name in found if not (name == "empty_buffer" and "all_retired" in found)]


def _has_empty_buffer(connection: Connection, run_key: int, last_step: int, has_no_reward: bool) -> bool:
    spec = connection.scalars(select(models.runs.c.spec).where(models.runs.c.run_key == run_key)).one()
    is_experiential = spec.get("algorithm", {}).get("experience_ratio", 0.5) > 0.0
    if not is_experiential or last_step < NUM_RECENT_STEPS or _last(connection, run_key, "buffer/num_questions") != 0:
        return False
    # Before the delayed start an empty buffer is as it should be, unless nothing points to a start.
    return has_no_reward or _has_step(connection, run_key, models.steps.c.is_started)


def _has_collapsed(connection: Connection, run_key: int) -> bool:
    first = _edge(connection, run_key, "policy/entropy", is_newest=False)
    last = _edge(connection, run_key, "policy/entropy", is_newest=True)
    if first is None or last is None:
        return False
    return last.value < MIN_ENTROPY or last.value < MIN_ENTROPY_SHARE * first.value


def _has_all_retired(connection: Connection, run_key: int) -> bool:
    questions = models.questions
    num_questions = connection.scalar(
        select(func.count()).where(questions.c.run_key == run_key, questions.c.question_set == "training")
    )
    num_retired = _last(connection, run_key, "buffer/num_retired")
    return bool(num_questions) and num_retired is not None and num_retired >= (num_questions or 0)


def _has_step(connection: Connection, run_key: int, condition: Any) -> bool:  # noqa: ANN401 - any SQL condition
    steps = models.steps
    found = select(steps.c.step).where(steps.c.run_key == run_key, ~steps.c.is_superseded, condition).limit(1)
    return connection.scalar(found) is not None


def _recent(connection: Connection, run_key: int, key: str, last_step: int) -> list[float]:
    metrics = models.metrics
    query = select(metrics.c.value).where(
        metrics.c.run_key == run_key,
        metrics.c.key == key,
        metrics.c.step > last_step - NUM_RECENT_STEPS,
        ~metrics.c.is_superseded,
    )
    return list(connection.scalars(query))


def _last(connection: Connection, run_key: int, key: str) -> float | None:
    point = _edge(connection, run_key, key, is_newest=True)
    return None if point is None else point.value


def _edge(connection: Connection, run_key: int, key: str, *, is_newest: bool) -> MetricPoint | None:
    metrics = models.metrics
    query = (
        select(metrics.c.step, metrics.c.value)
        .where(metrics.c.run_key == run_key, metrics.c.key == key, ~metrics.c.is_superseded)
        .order_by(metrics.c.step.desc() if is_newest else metrics.c.step)
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else MetricPoint(row.step, row.value)


def _last_avg_at_n(connection: Connection, run_key: int) -> float | None:
    table = models.evaluations
    query = (
        select(table.c.avg_at_n)
        .where(table.c.run_key == run_key, table.c.question_set == "held_out", ~table.c.is_superseded)
        .order_by(table.c.step.desc(), table.c.attempt.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else _json_number(row.avg_at_n)


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
