"""Runs in every state, written by the real recorder and ingested by the real ingest."""

import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.execution.supervisor.indexing import rebuild_index
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.bounded_json import seal
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BucketCount
from tests.step_reports import make_questions, make_report

HOSTILE = "<img src=x onerror=alert(1)> **b** :red[r] $x$ [l](http://evil.example) \x1b[31m\u202e"
FAILURE = "optim.learning_rate: the loss is not a finite number at step 12; lower it and resume."
NUM_STEPS = 30
SECONDS_TAKEN = 48


@dataclass(frozen=True)
class RecordedRun:
    """What to record; `num_done` of 30 steps."""

    run_id: str
    name: str
    status: str
    num_done: int
    preset: str = "chains-exgrpo"
    reason: str = ""


RUNNING = RecordedRun("run-running", "exgrpo live", "running", 18)
FINISHED = RecordedRun("run-finished", "exgrpo whole", "finished", 30)
FAILED = RecordedRun("run-failed", "too fast", "failed", 11, reason=FAILURE)
QUEUED = RecordedRun("run-queued", "waits", "queued", 0, preset="chains-on-policy")
ON_POLICY = RecordedRun("run-on-policy", "on-policy whole", "finished", 30, preset="chains-on-policy")
HOSTILE_RUN = RecordedRun("run-hostile", HOSTILE, "failed", 3, reason=HOSTILE)
ALL = (RUNNING, FINISHED, ON_POLICY, FAILED, QUEUED, HOSTILE_RUN)


def record_all(runs_root):
    record(runs_root, *ALL)


def record(runs_root, *runs):
    """Write folders, logs, database rows and the supervisor's heartbeat; the first run is the newest."""
    beat(runs_root, datetime.now(UTC))
    database = open_database(None, runs_root)
    for run in reversed(runs):
        spec = load_preset(run.preset).model_copy(update={"num_steps": NUM_STEPS})
        folder = _write_folder(runs_root, run, spec)
        ingest_run(database, folder, run, spec)
    database.close()


def beat(runs_root, at, num_unread=0):
    path = runs_root / "workbench" / "supervisor.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": 1, "at": at.isoformat(), "num_unread": num_unread}), encoding="utf-8")


def cut_specification(runs_root, *run_ids):
    for run_id in run_ids:
        path = RunDirectory(runs_root / run_id).spec_path
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 9 // 10])
    rebuild_index(runs_root, None)


def pass_at_1(step):
    return 0.2 + 0.4 * (1 - math.exp(-step / 10))


def _write_folder(runs_root, run, spec):
    folder = RunDirectory.create(runs_root, spec, run_id=run.run_id)
    folder.info_path.write_bytes(seal(json.dumps({**folder.read_run_info(), "name": run.name}).encode()))
    folder.log_path.write_text("".join(f"step {step} of {run.name}\n" for step in range(1, 301)), encoding="utf-8")
    if run.num_done == 0:
        Journal(runs_root).append(JournalKind.SUBMITTED, run.run_id, attempt=1)
        folder.request_attempt(1)
        return folder
    folder.attempt_path(1).mkdir(parents=True, exist_ok=True)
    recorder = FileRecorder(folder, 1, spec.recording)
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    recorder.evaluation(_evaluation(0))
    for report in _reports(run, spec):
        recorder.step(report)
        if report.step % 10 == 0:
            recorder.evaluation(_evaluation(report.step))
            checkpoint = save_checkpoint(folder.checkpoints_path, report.step, _write_weights)
            recorder.checkpoint(report.step, checkpoint.path)
    recorder.close()
    if run.status != "running":
        fields = ("optim.learning_rate",) if run.reason == FAILURE else ()
        write_outcome(folder.attempt_path(1), RunStatus(run.status), run.reason, fields=fields)
    return folder


def ingest_run(database, folder, run, spec):
    events.register_run(database, folder.read_run_info(), spec.model_dump(mode="json"))
    for batch in EventReader(folder).batches():
        events.ingest_events(database, run.run_id, batch.events, batch.position)
    if run.status == "queued":
        return
    started_at = get_run(database, run.run_id).started_at
    ended_at = started_at + timedelta(seconds=SECONDS_TAKEN)
    events.set_status(database, run.run_id, run.status, run.reason, attempt=1, at=ended_at)


def _reports(run, spec):
    for step in range(1, run.num_done + 1):
        metrics = _metrics(step, spec)
        if run.status == "failed" and step == run.num_done:
            metrics["optim/gradient_norm"] = float("nan")
        buckets = [BucketCount(bucket, bucket * step, 1 / 7, bucket % 3, 0) for bucket in range(8)]
        has_buffer = spec.algorithm.replays_experience
        yield replace(make_report(step), metrics=metrics, buckets=buckets if has_buffer else [], notices=[])


def _write_weights(checkpoint):
    (checkpoint.path / "weights").write_bytes(bytes(1_420_000))


def _evaluation(step):
    num_correct = [3 if index >= step else 8 for index in range(100)]
    return EvaluationRecord(step, "held_out", [f"q{index}" for index in range(100)], num_correct, 8, 0.6, 1.0)


def _metrics(step, spec):
    replays = spec.algorithm.replays_experience
    values = {
        **dict.fromkeys(("reward/mean", "reward/pass_at_1", "reward/pass_at_1_fresh"), pass_at_1(step)),
        "reward/pass_at_k": pass_at_1(step) + 0.2, "policy/entropy": 0.5 - 0.01 * step,
        "response/mean_tokens": 60.0 + step, "response/max_tokens": 96.0, "optim/gradient_norm": 0.7,
        "loss/policy": 0.01 * (step % 3 - 1), "loss/total": 0.01 * (step % 3), "seconds/rollout": 0.12,
        "seconds/score": 0.02, "seconds/update": 0.1, "seconds/other": 0.01, "seconds/step": 0.25,
        "rollouts/fresh_total": 256.0 * step, "tokens/generated_total": 256.0 * 60.0 * step,
        "buffer/num_questions": 4.0 * step * replays, "buffer/num_trajectories": 20.0 * step * replays,
        "buffer/num_retired": float(step // 2 * replays), "buffer/num_in_data": 256.0,
        "buffer/memory_bytes": 5_000.0 + step, "buffer/file_bytes": 2_000_000.0, "batch/questions_left": 5.5,
    }  # fmt: skip
    if not replays or step < 3:
        return values
    return values | {
        "replay/num_replayed": 8.0, "replay/shortfall": 0.0, "replay/age_mean": step / 2, "replay/age_max": float(step),
        "replay/entropy_chosen": 0.2, "replay/entropy_rejected": 0.4, "experience/num_inserted": 20.0,
        "ratio/replayed_mean": 1.1, "ratio/replayed_max": 4.0, "ratio/replayed_ess": 0.9, "ratio/shaped_mean": 0.9,
    }  # fmt: skip
