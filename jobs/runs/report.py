"""Results of a run in a few numbers, for the last line of a command and for programs."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from exgrpo.db.connections.session import Database
from exgrpo.db.queries import benchmarks, buffer, metrics, runs
from exgrpo.db.rows.display_names import escape_control_characters
from exgrpo.db.rows.runs import Badge, EvaluationRow, RunRow, UnknownRunError
from exgrpo.db.statistics import interval_text
from exgrpo_core.step_report import NUM_RECENT_STEPS

HEALTH_SENTENCES: dict[Badge, str] = {
    "no_reward": f"no reward in the last {NUM_RECENT_STEPS} steps",
    "no_gradient": f"rollouts of each question earned the same in the last {NUM_RECENT_STEPS} steps",
    "empty_buffer": "the buffer holds no question, though questions are left to collect",
    "entropy_collapse": "the policy's entropy has collapsed",
    "not_finite": "a step had numbers that are not finite",
    "all_retired": "every question is retired, so none is left to replay",
    "not_shown": "not all of it is shown; its page says why",
    "not_recorded": "rows are left out; its page says which",
    "damaged": "files of the run are damaged; `exgrpo verify` says what can be recovered",
    "stalled": "nothing was recorded for much longer than a step takes",
}
REPLAYED = "replay/num_replayed"


def report_run(database: Database, run_id: str) -> dict[str, Any]:
    """Return a run's end, scores before and after with intervals, buckets, retired questions and replays.

    The steps before a branch count.

    Raises:
        UnknownRunError: The database does not know it, since its folder cannot be read.
    """
    row = _run_row(database, run_id)
    replays = metrics.metric_series(database, run_id, [REPLAYED], None, with_parents=True)[REPLAYED]
    spent = metrics.training_seconds(database, run_id, max_points=1)
    last = metrics.last_metrics(database, run_id)
    buckets = Counter(buffer.state_at(database, run_id, row.step).buckets.values())
    return {
        "run_id": run_id,
        "name": row.name,
        "method": row.method,
        "status": row.status,
        "reason": row.status_reason,
        "steps": row.step,
        "seconds": round(spent[-1].value if spent else 0.0, 2),
        "evaluations": _before_and_after(metrics.list_evaluations(database, run_id, with_parents=True)),
        "buckets": {str(bucket): buckets[bucket] for bucket in sorted(buckets)},
        "buffered": sum(buckets.values()),
        "retired": int(last.get("buffer/num_retired", 0)),
        "replays": int(sum(point.value for point in replays)),
        "health": [HEALTH_SENTENCES.get(badge, badge) for badge in row.health],
        "notices": _notices(database, run_id),
    }


def describe_report(report: dict[str, Any]) -> str:
    """Return the report as one line, and the newest notices of steps below it."""
    reason = f" ({report['reason']})" if report["reason"] else ""
    state = f"{report['status']}{reason}"
    parts = [f"{report['run_id']} {state}: {report['steps']} steps in {report['seconds']:.0f} s"]
    for question_set, scores in report["evaluations"].items():
        name = f"{question_set.replace('_', '-')} Avg@{scores['samples_per_question']}"
        found = [scores[when] for when in ("before", "after") if scores[when]]
        parts.append(f"{name} " + ", then ".join(f"{item['avg']:.3f}{interval_words(item)}" for item in found))
    parts.append(f"buffer {report['buffered']} questions, retired {report['retired']}, replays {report['replays']}")
    if report["health"]:
        parts.append(f"health: {', '.join(report['health'])}")
    if report.get("peak_memory"):
        parts.append(f"peak memory {report['peak_memory'] / 1e9:.2f} GB")
    return "\n".join(["; ".join(parts), *report["notices"]])


def _notices(database: Database, run_id: str) -> list[str]:
    return [
        f"step {item.step:,}: {escape_control_characters(item.text)}" for item in metrics.step_notices(database, run_id)
    ]


def summarize_run(database: Database, run_id: str) -> dict[str, Any]:
    """Return one run with its newest metrics, all evaluations with intervals, attempts and checkpoints.

    Raises:
        UnknownRunError: The database does not know it, since its folder cannot be read.
    """
    run = dataclasses.asdict(_run_row(database, run_id))
    run.pop("pass_at_1_curve")
    evaluations = metrics.list_evaluations(database, run_id)
    return {
        "run": run,
        "metrics": metrics.last_metrics(database, run_id),
        "notices": _notices(database, run_id),
        "evaluations": [dataclasses.asdict(item) for item in evaluations],
        "benchmarks": [dataclasses.asdict(item) for item in benchmarks.list_scores(database, run_id=run_id)],
        "attempts": [dataclasses.asdict(item) for item in runs.list_attempts(database, run_id)],
        "checkpoints": [dataclasses.asdict(item) for item in runs.list_checkpoints(database, run_id)],
    }


def _run_row(database: Database, run_id: str) -> RunRow:
    row = runs.get_run(database, run_id)
    if row is None:
        raise UnknownRunError(
            f"{run_id}: the database does not have it. Its folder cannot be read, or another workbench still has to "
            "read it. Its log.txt says how it ended."
        )
    return row


def _before_and_after(evaluations: list[EvaluationRow]) -> dict[str, dict[str, Any]]:
    scores_of_set: dict[str, dict[str, Any]] = {}
    for row in evaluations:
        counts = {"num_questions": row.num_questions, "samples_per_question": row.samples_per_question}
        scores = {"step": row.step, "avg": row.avg_at_n, "interval": row.interval, **counts}
        entry = scores_of_set.setdefault(row.question_set, {"before": scores, "after": None})
        entry |= counts
        if entry["before"] is not scores:
            entry["after"] = scores
    return scores_of_set


def interval_words(scores: Mapping[str, Any], decimals: int = 3) -> str:
    """Return the interval of a score and what it is over: ` (95%: 0.217 to 0.783, 8 questions x 32)`."""
    ends = interval_text(scores["interval"], decimals, scale=1)
    of = f"{scores['num_questions']} questions x {scores['samples_per_question']}"
    return f" (95%: {ends}, {of})" if ends else f" ({of})"
