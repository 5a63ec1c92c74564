"""What the runs list shows of a run, computed once per ingest instead of once per page view."""

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select, update

from db.rows.algorithm_of_spec import experience_ratio
from db.tables import models
from db.tables.step_values import Curve, list_spans, read_curves

NUM_CURVE_POINTS = 40
NUM_RECENT_STEPS = 20
"""Steps without reward, or with an empty buffer, after which the run gets a health badge."""
MIN_ENTROPY = 0.01
"""Nats; a policy below it has collapsed, as has one below `MIN_ENTROPY_SHARE` of its first entropy."""
MIN_ENTROPY_SHARE = 0.05
_SCORE = "reward/pass_at_1"
_KEYS = (_SCORE, "reward/mean", "seconds/step", "policy/entropy", "buffer/num_questions", "buffer/num_retired")

Curves = Mapping[str, Curve]
"""The metrics of `_KEYS` by name."""


def refresh_summary(connection: Connection, run_key: int) -> None:
    """Compute a run's step, curve, newest scores and health badges from its rows that are not superseded."""
    runs = models.runs
    last_step = _last_step(connection, run_key)
    curves, stride = _read_curves(connection, run_key, last_step)
    scored_steps, values = curves[_SCORE]
    is_listed = scored_steps % stride == 0
    is_listed[-1:] = True
    scores = values[is_listed].tolist()
    seconds = _recent(curves["seconds/step"], last_step)
    summary = {
        "pass_at_1_curve": [score for score in scores if math.isfinite(score)],
        "last_pass_at_1": _json_number(scores[-1]) if scores else None,
        "last_avg_at_n": _last_avg_at_n(connection, run_key),
        "seconds_per_step": _json_number(sum(seconds) / len(seconds)) if seconds else None,
        "health": _health(connection, run_key, last_step, curves),
    }
    is_run = runs.c.run_key == run_key
    faults = connection.scalars(select(runs.c.summary).where(is_run)).one().get("faults")
    kept = {"faults": faults} if faults else {}
    connection.execute(update(runs).where(is_run).values(summary=summary | kept, step=last_step))


def _last_step(connection: Connection, run_key: int) -> int:
    steps = models.steps
    last = select(func.max(steps.c.step)).where(steps.c.run_key == run_key, ~steps.c.is_superseded)
    return connection.scalar(last) or 0


def _read_curves(connection: Connection, run_key: int, last_step: int) -> tuple[Curves, int]:
    """Return metrics at the steps that the summary needs, the first and the newest of each among them.

    Also the stride: the score's curve has the steps that it divides, and the newest.
    """
    spans = list_spans(connection, run_key)
    scored = [span for span in spans if _SCORE in span.names]
    num_between = NUM_CURVE_POINTS - 1
    stride = 1
    if sum(span.num_steps for span in scored) > num_between:
        first_step = min(span.first_step for span in scored)
        stride = math.ceil((max(span.last_step for span in scored) - first_step + 1) / num_between)
    edges = {step for span in spans for step in (span.first_step, span.last_step)}
    step = models.steps.c.step
    is_needed = or_(step % stride == 0, step > last_step - NUM_RECENT_STEPS, step.in_(edges))
    return read_curves(connection, run_key, _KEYS, is_needed), stride


def _health(connection: Connection, run_key: int, last_step: int, curves: Curves) -> list[str]:
    rewards = _recent(curves["reward/mean"], last_step)
    # Without rewards at all, as in supervised fine-tuning, this badge does not apply.
    has_no_reward = last_step >= NUM_RECENT_STEPS and bool(rewards) and not any(rewards)
    badges = [
        ("no_reward", has_no_reward),
        ("empty_buffer", _has_empty_buffer(connection, run_key, last_step, curves, has_no_reward)),
        ("entropy_collapse", _has_collapsed(curves["policy/entropy"])),
        ("not_finite", _has_step(connection, run_key, ~models.steps.c.is_finite)),
        ("all_retired", _has_all_retired(connection, run_key, curves)),
    ]
    health = [name for name, holds in badges if holds]
    return [name for name in health if not (name == "empty_buffer" and "all_retired" in health)]


def _has_empty_buffer(
    connection: Connection, run_key: int, last_step: int, curves: Curves, has_no_reward: bool
) -> bool:
    spec = connection.scalars(select(models.runs.c.spec).where(models.runs.c.run_key == run_key)).one()
    replays_experience = experience_ratio(spec) > 0.0
    if not replays_experience or last_step < NUM_RECENT_STEPS or _newest(curves["buffer/num_questions"]) != 0:
        return False
    # Before the delayed start an empty buffer is normal, unless the reward is zero.
    return has_no_reward or _has_step(connection, run_key, models.steps.c.is_started)


def _has_collapsed(entropies: Curve) -> bool:
    last = _newest(entropies)
    return last is not None and (last < MIN_ENTROPY or last < MIN_ENTROPY_SHARE * float(entropies.values[0]))


def _has_all_retired(connection: Connection, run_key: int, curves: Curves) -> bool:
    questions = models.questions
    num_questions = connection.scalar(
        select(func.count()).where(questions.c.run_key == run_key, questions.c.question_set == "training")
    )
    num_retired = _newest(curves["buffer/num_retired"])
    return bool(num_questions) and num_retired is not None and num_retired >= (num_questions or 0)


def _has_step(connection: Connection, run_key: int, condition: Any) -> bool:  # noqa: ANN401 - any SQL condition
    steps = models.steps
    query = select(steps.c.step).where(steps.c.run_key == run_key, ~steps.c.is_superseded, condition).limit(1)
    return connection.scalar(query) is not None


def _recent(curve: Curve, last_step: int) -> list[float]:
    recent: list[float] = curve.values[curve.steps > last_step - NUM_RECENT_STEPS].tolist()
    return recent


def _newest(curve: Curve) -> float | None:
    return float(curve.values[-1]) if len(curve.values) else None


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
