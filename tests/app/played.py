"""Runs that Algorithm 1 itself played, on an engine without a model: every record is consistent with every other."""

import json
from datetime import UTC, datetime

import numpy as np

from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.bounded_json import seal
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.app import recorded
from tests.app.recorded import HOSTILE, RecordedRun
from tests.exgrpo_core.builders import question, small_config
from tests.exgrpo_core.toy_engine import ToyEngine

NUM_QUESTIONS = 24
RUNNING = RecordedRun("play-running", "live replay", "running", 9)
FINISHED = RecordedRun("play-finished", "whole replay", "finished", 14)
FAILED = RecordedRun("play-failed", "broken replay", "failed", 6, reason=recorded.FAILURE)
UNSTARTED = RecordedRun("play-unstarted", "start not open", "finished", 3)
QUEUED = RecordedRun("play-queued", "waiting", "queued", 0)
ON_POLICY = RecordedRun("play-on-policy", "no replay", "finished", 3)
ALL = (FINISHED, RUNNING, FAILED, UNSTARTED, QUEUED, ON_POLICY)


class TalkingEngine(ToyEngine):
    """A toy engine whose trajectories have texts, verdicts and entropies; one text in seven is hostile."""

    def _trajectory(self, question):
        made = super()._trajectory(question)
        made.text = f"{' '.join(map(str, made.token_ids))} so \\boxed{{7}}"
        if self.rng.random() < 1 / 7:
            made.text = f"{HOSTILE} {made.text}"
        made.verdict = "correct" if made.reward else "wrong"
        made.entropies = 0.2 + self.rng.random(made.token_ids.size, dtype=np.float32)
        made.is_valid = bool(self.rng.random() < 0.5)
        made.has_code = bool(self.rng.random() < 0.3)
        return made


def record_all(runs_root):
    for run in reversed(ALL):
        play(runs_root, run)


def play(runs_root, run, change=None, **settings):
    """Play a run, record and ingest it; with `change`, each report is changed before it is recorded."""
    recorded.beat(runs_root, datetime.now(UTC))
    starts_at = 1.0 if run.run_id == UNSTARTED.run_id else None
    ratio = 0.0 if run.run_id == ON_POLICY.run_id else 0.5
    config = small_config(start_pass_rate=starts_at, experience_ratio=ratio, **settings)
    update = {"num_steps": recorded.NUM_STEPS, "algorithm": config}
    spec = load_preset("chains-exgrpo").model_copy(update=update)
    folder = RunDirectory.create(runs_root, spec, run_id=run.run_id)
    folder.info_path.write_bytes(seal(json.dumps({**folder.read_run_info(), "name": run.name}).encode()))
    if run.num_done:
        _record(folder, run, spec.recording, config, change)
    database = open_database(None, runs_root)
    recorded.ingest_run(database, folder, run, spec)
    database.close()
    return folder


def _record(folder, run, retention, config, change):
    folder.attempt_path(1).mkdir(parents=True, exist_ok=True)
    questions = [question(index) for index in range(NUM_QUESTIONS)]
    state = ExGRPOState.create(folder.path / "buffer", questions, config)
    engine = TalkingEngine(list(np.linspace(0.15, 0.97, NUM_QUESTIONS)))
    recorder = FileRecorder(folder, 1, retention)
    recorder.status(RunStatus.RUNNING)
    recorder.questions(questions, "training")
    for _ in range(run.num_done):
        report = exgrpo_step(state, engine, config)
        if change is not None:
            change(report)
        recorder.step(report)
    recorder.close()
    if run.status != "running":
        write_outcome(folder.attempt_path(1), RunStatus(run.status), run.reason)
