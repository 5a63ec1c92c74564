"""What the runs list shows of a run, computed once per ingest instead of once per page view."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, or_, select, update

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.runs import Badge
from exgrpo.db.rows.spec_fields import experience_ratio, is_unreadable
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import storable_text
from exgrpo.db.tables.shared_reads import Curve, read_curves, require_run_key
from exgrpo_core.config import MAX_ROLLOUTS
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.step_report import NUM_RECENT_STEPS
from exgrpo_core.sums import PASS_RATE

NUM_CURVE_POINTS = 40
MIN_ENTROPY = 0.01
"""Nats; a policy below it has collapsed, as has one below `MIN_ENTROPY_SHARE` of its first entropy."""
MIN_ENTROPY_SHARE = 0.05
_LEFT = "batch/questions_left"
_TOKENS = "tokens/generated_total"
_KEYS = (
    PASS_RATE,
    "reward/mean",
    "seconds/step",
    "policy/entropy",
    "buffer/num_questions",
    "buffer/num_retired",
    _TOKENS,
    _LEFT,
)

Curves = Mapping[str, Curve]
"""The metrics of `_KEYS` by name."""
_KINDS = {
    **dict.fromkeys(("questions", "step", "evaluation", "checkpoint"), "train"),
    "benchmark": "eval",
    **dict.fromkeys(("judging", "asked", "votes"), "judge"),
}
MAX_FAULTS = 20
"""Further ones are not kept: `exgrpo verify` finds all."""
_MAX_CHARACTERS = 400


def refresh_summary(connection: Connection, run_key: int) -> None:
    """Compute a run's step, curve, newest scores and health badges from its rows."""
    runs = models.runs
    last_step = _last_step(connection, run_key)
    curves, stride = _read_curves(connection, run_key, last_step)
    scored_steps, values = curves[PASS_RATE]
    is_listed = scored_steps % stride == 0
    is_listed[-1:] = True
    scores = values[is_listed].tolist()
    seconds = _recent(curves["seconds/step"], last_step)
    summary = {
        "pass_at_1_curve": [score for score in scores if math.isfinite(score)],
        "last_pass_at_1": _json_number(scores[-1]) if scores else None,
        "last_avg_at_n": _last_avg_at_n(connection, run_key),
        "seconds_per_step": _json_number(sum(seconds) / len(seconds)) if seconds else None,
        "generated_tokens": _json_number(_newest(curves[_TOKENS])),
        "health": _health(connection, run_key, last_step, curves),
    }
    is_run = runs.c.run_key == run_key
    faults = connection.scalars(select(runs.c.summary).where(is_run)).one().get("faults")
    kept = {"faults": faults} if faults else {}
    connection.execute(update(runs).where(is_run).values(summary=summary | kept, step=last_step))


def _last_step(connection: Connection, run_key: int) -> int:
    steps = models.steps
    last = select(func.max(steps.c.step)).where(steps.c.run_key == run_key)
    return connection.scalar(last) or 0


def _read_curves(connection: Connection, run_key: int, last_step: int) -> tuple[Curves, int]:
    """Return metrics at the steps that the summary needs, the first and the newest of each among them.

    Also the stride: the score's curve has the steps that it divides, and the newest.
    """
    metrics = models.metrics
    query = (
        select(metrics.c.name, func.min(metrics.c.step), func.max(metrics.c.step), func.count())
        .where(metrics.c.run_key == run_key, metrics.c.name.in_(_KEYS))
        .group_by(metrics.c.name)
    )
    spans = {name: span for name, *span in connection.execute(query)}
    first_step, last_scored, num_scores = spans.get(PASS_RATE, (0, 0, 0))
    num_between = NUM_CURVE_POINTS - 1
    stride = math.ceil((last_scored - first_step + 1) / num_between) if num_scores > num_between else 1
    edges = {step for first, last, _ in spans.values() for step in (first, last)}
    step = metrics.c.step
    is_needed = or_(step % stride == 0, step > last_step - NUM_RECENT_STEPS, step.in_(edges))
    return read_curves(connection, run_key, _KEYS, is_needed), stride


def _health(connection: Connection, run_key: int, last_step: int, curves: Curves) -> list[Badge]:
    rewards = _recent(curves["reward/mean"], last_step)
    # Without rewards at all, as in supervised fine-tuning, this badge does not apply.
    has_no_reward = last_step >= NUM_RECENT_STEPS and bool(rewards) and not any(rewards)
    num_left = _recent(curves[_LEFT], last_step)
    has_no_gradient = last_step >= NUM_RECENT_STEPS and bool(num_left) and not any(num_left)
    badges: list[tuple[Badge, bool]] = [
        ("no_reward", has_no_reward),
        ("no_gradient", has_no_gradient and not has_no_reward),
        ("empty_buffer", _has_empty_buffer(connection, run_key, last_step, curves, has_no_reward)),
        ("entropy_collapse", _has_collapsed(curves["policy/entropy"])),
        ("not_finite", _has_step(connection, run_key, ~models.steps.c.is_finite)),
        ("all_retired", _has_all_retired(connection, run_key, curves)),
    ]
    health = [name for name, holds in badges if holds]
    follows = {"empty_buffer", "no_gradient"} if "all_retired" in health else set()
    return [name for name in health if name not in follows]


def _has_empty_buffer(
    connection: Connection, run_key: int, last_step: int, curves: Curves, has_no_reward: bool
) -> bool:
    spec = connection.scalars(select(models.runs.c.spec).where(models.runs.c.run_key == run_key)).one()
    replays_experience = experience_ratio(spec) > 0.0
    if not replays_experience or last_step < NUM_RECENT_STEPS or _newest(curves["buffer/num_questions"]) != 0:
        return False
    # Before the delayed start an empty buffer is normal, unless the reward is zero.
    return has_no_reward or _has_step(connection, run_key, models.steps.c.is_replay_open)


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
    query = select(steps.c.step).where(steps.c.run_key == run_key, condition).limit(1)
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
        .where(table.c.run_key == run_key, table.c.question_set == "held_out")
        .order_by(table.c.step.desc(), table.c.attempt.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else _json_number(row.avg_at_n)


def _json_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def record_settings(connection: Connection, run_key: int, events: Sequence[Mapping[str, Any]]) -> None:
    """Add the kind and K to the placeholder of a specification that cannot be read; others stay unchanged."""
    runs = models.runs
    spec: dict[str, Any] = connection.scalars(select(runs.c.spec).where(runs.c.run_key == run_key)).one()
    if not is_unreadable(spec):
        return
    kinds = [_KINDS[event["kind"]] for event in events if event["kind"] in _KINDS]
    found: dict[str, Any] = {"kind": kinds[0]} if kinds else {}
    known: dict[str, int] = spec.get("algorithm", {})
    num_rollouts = max(_group_sizes(events), default=0)
    # A group may lack rollouts that failed.
    if max(2, known.get("rollouts_per_question", 0)) <= num_rollouts <= MAX_ROLLOUTS:
        found["algorithm"] = {"rollouts_per_question": num_rollouts}
    if found:
        connection.execute(update(runs).where(runs.c.run_key == run_key).values(spec=spec | found))


def _group_sizes(events: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    for event in events:
        if event["kind"] == "step":
            yield from Counter(trajectory["group_position"] for trajectory in event["trajectories"]).values()


def record_faults(database: Database, run_id: str, faults: Sequence[Fault]) -> None:
    """Keep faults; one that is known changes nothing.

    Raises:
        UnknownRunError: There is no such run.
    """
    if faults:
        database.write(lambda connection: add_faults(connection, require_run_key(connection, run_id), faults))


def add_faults(connection: Connection, run_key: int, faults: Sequence[Fault]) -> None:
    """Keep faults, within a transaction; a new reason why the run is not shown replaces the earlier one.

    Lines that were left out of a file for one reason are counted together, those up to a byte once.
    """
    known = _known_faults(connection, run_key)
    is_not_shown = any(fault.kind is FaultKind.NOT_SHOWN for fault in faults)
    kept = [record for record in known if not (is_not_shown and record["kind"] == FaultKind.NOT_SHOWN)]
    records = [replace(fault, details=storable_text(fault.details[:_MAX_CHARACTERS])).as_record() for fault in faults]
    for record in records:
        like = [other for other in kept if other | {"position": []} == record | {"position": []}]
        if record["kind"] == FaultKind.NOT_RECORDED and like:
            (count, up_to), (further, place) = like[0]["position"], record["position"]
            like[0]["position"] = [count + further, place] if place > up_to else [count, up_to]
        elif record not in kept:
            kept.append(record)
    _keep(connection, run_key, kept[:MAX_FAULTS])


def forget_not_shown(database: Database, run_id: str) -> None:
    """Forget why a run was not shown completely, since now it is."""

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        known = _known_faults(connection, run_key)
        _keep(connection, run_key, [record for record in known if record["kind"] != FaultKind.NOT_SHOWN])

    database.write(work)


def is_shown(summary: Mapping[str, Any]) -> bool:
    """Return whether everything recorded of a run could be ingested, by its summary."""
    return all(record["kind"] != FaultKind.NOT_SHOWN for record in summary.get("faults", ()))


def _known_faults(connection: Connection, run_key: int) -> list[dict[str, Any]]:
    known = connection.scalars(select(models.runs.c.summary).where(models.runs.c.run_key == run_key)).one()
    return list(known.get("faults", ()))


def _keep(connection: Connection, run_key: int, records: list[dict[str, Any]]) -> None:
    is_run = models.runs.c.run_key == run_key
    summary = connection.scalars(select(models.runs.c.summary).where(is_run)).one()
    connection.execute(update(models.runs).where(is_run).values(summary=summary | {"faults": records}))
