"""Runs in every state, as a runs root with its database holds them."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from db import models
from db.session import Database, open_database
from jobs.journal import Journal, JournalKind
from jobs.run_directory import RunDirectory
from jobs.specs import TrainSpec, load_preset

HOSTILE = "<img src=x onerror=alert(1)> **b** :red[r] $x$ [l](http://evil.example) \x1b[31m\u202e"
FAILURE = "optim.learning_rate: the loss is not a finite number at step 12; lower it and resume."


@dataclass(frozen=True)
class RecordedRun:
    """What to record; `num_done` steps of 30."""

    run_id: str
    name: str
    status: str
    num_done: int
    preset: str = "chains-exgrpo"
    reason: str = ""
    health: tuple[str, ...] = ()
    age_minutes: int = 1


RUNNING = RecordedRun("run-running", "exgrpo live", "running", 18)
FINISHED = RecordedRun("run-finished", "exgrpo whole", "succeeded", 30, age_minutes=5)
FAILED = RecordedRun("run-failed", "too fast", "failed", 11, reason=FAILURE, health=("not_finite",), age_minutes=9)
QUEUED = RecordedRun("run-queued", "waits", "queued", 0, preset="chains-on-policy")
ON_POLICY = RecordedRun("run-on-policy", "on-policy whole", "succeeded", 30, preset="chains-on-policy", age_minutes=6)
HOSTILE_RUN = RecordedRun("run-hostile", HOSTILE, "failed", 3, reason=HOSTILE, age_minutes=30)
ALL = (RUNNING, FINISHED, FAILED, QUEUED, ON_POLICY, HOSTILE_RUN)


def record_all(runs_root: Path) -> None:
    record(runs_root, *ALL)


def record(runs_root: Path, *runs: RecordedRun) -> None:
    """Write folders, logs, database rows and the supervisor's heartbeat."""
    beat(runs_root, datetime.now(UTC))
    database = open_database(None, runs_root)
    for run in runs:
        spec = load_preset(run.preset).model_copy(update={"num_steps": 30})
        folder = RunDirectory.create(runs_root, spec, run_id=run.run_id)
        folder.log_path.write_text("".join(f"step {step} of {run.name}\n" for step in range(1, 301)), encoding="utf-8")
        if run.status == "queued":
            Journal(runs_root).append(JournalKind.SUBMITTED, run.run_id, attempt=1)
        _insert(database, run, spec)
    database.close()


def beat(runs_root: Path, at: datetime) -> None:
    path = runs_root / "workbench" / "supervisor.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": 1, "at": at.isoformat()}), encoding="utf-8")


def pass_at_1(step: int) -> float:
    return 0.2 + 0.4 * (1 - math.exp(-step / 10))


def _insert(database: Database, run: RecordedRun, spec: TrainSpec) -> None:
    created = datetime.now(UTC) - timedelta(minutes=run.age_minutes)
    has_started, has_ended = run.num_done > 0, run.status in {"succeeded", "failed"}
    steps = range(1, run.num_done + 1)
    values = {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "status_reason": run.reason,
        "spec": spec.model_dump(mode="json"),
        "created_at": created,
        "started_at": created + timedelta(seconds=2) if has_started else None,
        "ended_at": created + timedelta(seconds=50) if has_ended else None,
        "last_event_at": datetime.now(UTC) if run.status == "running" else created + timedelta(seconds=50),
        "attempt": 1 if has_started else 0,
        "step": run.num_done,
        "summary": {
            "seconds_per_step": 0.25 if has_started else None,
            "last_pass_at_1": pass_at_1(run.num_done) if has_started else None,
            "last_avg_at_n": 0.512 if has_started else None,
            "pass_at_1_curve": [pass_at_1(step) for step in steps],
            "health": list(run.health),
        },
    }

    def insert(connection) -> None:
        key = connection.execute(models.runs.insert().values(values)).inserted_primary_key[0]
        if not has_started:
            return
        connection.execute(
            models.attempts.insert(),
            {"run_key": key, "attempt": 1, "started_at": created, "status": run.status, "status_reason": run.reason},
        )
        connection.execute(models.metrics.insert(), list(_metrics(key, run, spec)))
        connection.execute(models.bucket_counts.insert(), list(_buckets(key, run)))
        connection.execute(models.evaluations.insert(), list(_evaluations(key, run, created)))
        connection.execute(
            models.checkpoints.insert(),
            {"run_key": key, "step": 10, "attempt": 1, "at": created, "path": "checkpoints/10", "num_bytes": 1_420_000},
        )

    database.write(insert)


def _metrics(key: int, run: RecordedRun, spec: TrainSpec):
    replays = spec.algorithm.is_experiential
    for step in range(1, run.num_done + 1):
        values = {
            "reward/pass_at_1": pass_at_1(step),
            "reward/pass_at_k": pass_at_1(step) + 0.2,
            "policy/entropy": 0.5 - 0.01 * step,
            "response/mean_tokens": 60.0 + step,
            "response/max_tokens": 96.0,
            "optim/gradient_norm": 0.7 if run.status != "failed" or step < run.num_done else float("nan"),
            "loss/policy": 0.01 * (step % 3 - 1),
            "loss/total": 0.01 * (step % 3),
            "seconds/rollout": 0.12,
            "seconds/score": 0.02,
            "seconds/update": 0.1,
            "seconds/manage": 0.01,
            "buffer/num_questions": 4.0 * step if replays else 0.0,
            "buffer/num_trajectories": 20.0 * step if replays else 0.0,
            "buffer/num_retired": float(step // 2) if replays else 0.0,
        }
        if replays and step > 2:
            values |= {
                "replay/num_replayed": 8.0,
                "replay/deficit": 0.0,
                "replay/age_mean": step / 2,
                "replay/age_max": float(step),
                "replay/entropy_chosen": 0.2,
                "replay/entropy_rejected": 0.4,
                "ratio/replayed_mean": 1.1,
                "ratio/replayed_max": 4.0,
                "ratio/replayed_ess": 0.9,
                "ratio/shaped_mean": 0.9,
            }
        for name, value in values.items():
            yield {"run_key": key, "key": name, "step": step, "attempt": 1, "value": value}


def _buckets(key: int, run: RecordedRun):
    for step in range(1, run.num_done + 1):
        for bucket in range(8):
            yield {
                "run_key": key,
                "step": step,
                "attempt": 1,
                "bucket": bucket,
                "num_questions": bucket * step if run.preset == "chains-exgrpo" else 0,
                "probability": 1 / 7,
                "num_drawn": bucket % 3,
                "deficit": 0,
            }


def _evaluations(key: int, run: RecordedRun, at: datetime):
    for step in range(0, run.num_done + 1, 10):
        yield {
            "run_key": key,
            "question_set": "held_out",
            "step": step,
            "attempt": 1,
            "at": at,
            "samples_per_question": 8,
            "avg_at_n": 0.3 + 0.01 * step,
            "standard_error": 0.02,
            "pass_at_n": 0.8,
            "temperature": 0.6,
            "seconds": 1.0,
            "question_ids": [f"q{index}" for index in range(96)],
            "num_correct": [4] * 96,
        }
