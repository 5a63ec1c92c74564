"""Whole runs of the verl engine in processes of their own, as the supervisor starts them."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from exgrpo.jobs.runs.attempts import read_heartbeat, read_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import parse_spec
from tests.verl_on_cpu import on_cpu

MARK = "EXGRPO_TEST_MARK"
"""Environment variable that every process of a run inherits, Ray's included."""
NUM_STEPS = 12
RUN_SECONDS = 1500
"""A run takes one or two minutes on two free cores; a busy machine may need many more."""
LEAVE_SECONDS = 210
"""Once a process of Ray was there 120 s after its cluster's end; the supervisor kills those of a run after ten."""


def run_content(
    num_ranks: int = 1, experience_ratio: float = 0.5, kl_coefficient: float = 0.0, **changes: Any
) -> dict[str, Any]:
    return {
        "engine": "verl", "model": {"device": "cpu"},
        "data": {"num_questions": 8, "num_held_out": 4, "max_operations": 3}, "verl": on_cpu(num_ranks),
        "algorithm": {
            "batch_size": 4, "mini_batch_size": 2, "rollouts_per_question": 4, "max_prompt_tokens": 64,
            "max_response_tokens": 48, "experience_ratio": experience_ratio, "kl_coefficient": kl_coefficient,
            "start_pass_rate": 0.05, "policy_loss_factor": 8.0,
        },
        "optim": {"learning_rate": 2e-4}, "num_steps": NUM_STEPS,
        "validation": {"interval": None, "samples_per_question": 2, "num_training_questions": 2},
        "checkpoint_interval": 4, **changes,
    }  # fmt: skip


def new_run(root: Path, **changes: Any) -> RunDirectory:
    return RunDirectory.create(root, parse_spec(run_content(**changes), "test"))


def start_worker(run: RunDirectory, module: str = "exgrpo.jobs.execution.worker") -> tuple[subprocess.Popen, str]:
    """Start the run's next attempt; return its process and the mark that all its processes bear."""
    attempt = run.claim_attempt()
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", module, str(run.path), str(attempt)]
    environment = os.environ | {MARK: mark, "SPT_NOENV": "1"}  # as the supervisor starts it
    with run.log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    return process, mark


def work(run: RunDirectory) -> str:
    """Run an attempt to its end and return its status; nothing of it may be left afterwards."""
    process, mark = start_worker(run)
    wait_for(process, mark)
    outcome = read_outcome(run.attempt_path(run.newest_attempt()))
    assert outcome is not None, run.log_path.read_text()[-3000:]
    return str(outcome.status) if not outcome.reason else f"{outcome.status}: {outcome.reason}"


def work_until(run: RunDirectory, step: int) -> str:
    process, mark = start_worker(run)
    wait_for_step(process, run, step)
    run.request_stop()
    wait_for(process, mark)
    run.clear_stop()
    return str(read_outcome(run.attempt_path(run.newest_attempt())).status)


def wait_for_step(process: subprocess.Popen, run: RunDirectory, step: int) -> None:
    attempt_path = run.attempt_path(run.newest_attempt())
    until = time.monotonic() + RUN_SECONDS
    while process.poll() is None and time.monotonic() < until:
        heartbeat = read_heartbeat(attempt_path)
        if heartbeat is not None and heartbeat.step >= step:
            break
        time.sleep(0.2)


def wait_for_log(process: subprocess.Popen, run: RunDirectory, text: str) -> None:
    until = time.monotonic() + RUN_SECONDS
    while process.poll() is None and time.monotonic() < until and text not in run.log_path.read_text():
        time.sleep(0.2)


def wait_for(process: subprocess.Popen, mark: str) -> None:
    try:
        process.wait(timeout=RUN_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert processes_left(mark) == {}


def processes_left(mark: str) -> dict[int, str]:
    """Return command lines of processes that bear the mark, after a moment to go."""
    until = time.monotonic() + LEAVE_SECONDS
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def marked(mark: str) -> dict[int, str]:
    found = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
        except psutil.Error:
            continue
    return found


def steps_of(run: RunDirectory) -> dict[int, dict]:
    batch = EventReader(run).read(max_steps=1000)
    assert batch.faults == []
    return {event["step"]: event for event in batch.events if event["kind"] == "step"}


def draws_of(event: dict) -> dict:
    rows = event["trajectories"]
    return {
        "questions": [row["question_index"] for row in rows], "texts": [row["text"] for row in rows],
        "rewards": [row["reward"] for row in rows], "buckets": event["buckets"],
        "replays": [(row["question_index"], row["trajectory_id"]) for row in event["replays"]],
        "buffer_events": event["buffer_events"],
    }  # fmt: skip
