"""A runs root with toy runs, and a supervisor that is driven poll by poll."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.execution.supervisor.loop import Supervisor, SupervisorSettings
from exgrpo.jobs.execution.supervisor.watch import StopPolicy
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.run_status import RunStatus

TOY_WORKER = "tests.jobs.execution.supervisor.toy_worker"
TIMEOUT_SECONDS = 120.0


def toy_spec(num_steps: int = 3, *tags: str, checkpoint_interval: int = 1000, name: str = "toy") -> TrainSpec:
    return TrainSpec(name=name, num_steps=num_steps, tags=tags, checkpoint_interval=checkpoint_interval)


def wait_until(
    condition: Callable[[], bool], what: str, timeout_seconds: float = TIMEOUT_SECONDS, poll_seconds: float = 0.02
) -> None:
    give_up_at = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"waited in vain: {what}"
        time.sleep(poll_seconds)


def processes_of(runs_root: Path) -> list[int]:
    pids = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(str(runs_root) in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            pids.append(process.info["pid"])
    return [pid for pid in pids if pid != os.getpid()]


class Bench:
    launcher = LocalLauncher(TOY_WORKER, sys.executable)
    timeout_seconds, poll_seconds = TIMEOUT_SECONDS, 0.02

    def __init__(self, runs_root: Path) -> None:
        self.runs_root = runs_root
        self.supervisor: Supervisor | None = None
        self.index = Indexer(None, runs_root)

    def start(self, max_running: int = 1, grace_seconds: float = 60.0, term_seconds: float = 60.0) -> Supervisor:
        policy = StopPolicy(grace_seconds, term_seconds, silent_seconds=0.5)
        settings = SupervisorSettings(max_running, policy, resumes_interrupted=True)
        self.supervisor = Supervisor(self.runs_root, self.launcher, settings)
        return self.supervisor

    def poll(self) -> None:
        assert self.supervisor is not None
        self.supervisor.poll(self.index.num_unread)
        self.index.poll()

    def submit(self, spec: TrainSpec) -> str:
        return queue_job(self.runs_root, spec)

    def run_of(self, run_id: str) -> RunDirectory:
        return RunDirectory.open(self.runs_root, run_id)

    def look_until(self, run_id: str, *statuses: RunStatus, timeout_seconds: float | None = None) -> None:
        self.look_while(lambda: self.status_of(run_id) not in statuses, f"{run_id} to be {statuses}", timeout_seconds)

    def look_while(self, condition: Callable[[], bool], what: str, timeout_seconds: float | None = None) -> None:
        timeout_seconds = timeout_seconds or self.timeout_seconds
        wait_until(lambda: self.poll() or not condition(), what, timeout_seconds, self.poll_seconds)

    def status_of(self, run_id: str) -> RunStatus | None:
        state = self.supervisor.state_of(run_id)
        return state.status if state else None

    def reason_of(self, run_id: str) -> str:
        return self.supervisor.state_of(run_id).reason

    def log_of(self, run_id: str) -> str:
        return self.run_of(run_id).log_path.read_text(encoding="utf-8")

    def step_of(self, run_id: str) -> int:
        state = read_state(self.run_of(run_id))
        return state.heartbeat.step if state.heartbeat else 0

    def wait_for_step(self, run_id: str, step: int) -> None:
        wait_until(lambda: self.step_of(run_id) >= step, f"step {step}")

    def worker_pid(self, run_id: str) -> int:
        return read_state(self.run_of(run_id)).heartbeat.worker.pid
