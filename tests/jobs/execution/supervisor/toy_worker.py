"""A worker whose training loop counts steps: no torch, no model. What it does is told by the specification's tags."""

import json
import os
import signal
import subprocess
import sys
import time

from exgrpo.jobs.execution.worker.__main__ import main
from exgrpo.jobs.runs.checkpoints import open_newest, save_checkpoint
from exgrpo.jobs.runs.control import Control, Phase, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport

STEP_SECONDS = 0.02
LONG_SECONDS = 0.3
"""Of each phase, for the tag `long-phases`."""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def run_toy(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    tags = set(spec.tags)
    sys.stdout.write("The toy speaks.\n")
    if "fails" in tags:
        raise TrainingError("data.source: the toy data are missing.")
    if "crashes" in tags:
        raise KeyError("toy")
    if "exits" in tags:
        os._exit(7)
    if "aborts" in tags:
        os.abort()
    for tag in tags & LEFTOVERS.keys():
        LEFTOVERS[tag](run)
    if "stuck" in tags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    phase_seconds = LONG_SECONDS if "long-phases" in tags else 0.0
    step = resume_step(run)
    while step < spec.num_steps:
        if control.stop_requested():
            with control.phase(Phase.CHECKPOINT):
                time.sleep(phase_seconds)
                save(run, recorder, step)
            return RunStatus.STOPPED
        with control.phase(Phase.STEP):
            time.sleep(max(STEP_SECONDS, phase_seconds))
        step += 1
        metrics = {"reward/pass_at_1": 0.25, "reward/mean": 0.25, "seconds/step": STEP_SECONDS}
        recorder.step(StepReport(step=step, is_replay_open=False, groups=[], metrics=metrics))
        control.heartbeat(step)
        with control.phase(Phase.EVALUATION):
            time.sleep(phase_seconds)
        if step % spec.checkpoint_interval == 0:
            with control.phase(Phase.CHECKPOINT):
                time.sleep(phase_seconds)
                save(run, recorder, step)
    return RunStatus.FINISHED


def run_toy_evaluation(spec: EvalSpec, run: RunDirectory, _recorder: RunRecorder, control: Control) -> RunStatus:
    path = run.path / "done.txt"
    while (num_done := len(path.read_text().split()) if path.exists() else 0) < spec.seed:
        if control.stop_requested():
            return RunStatus.STOPPED
        time.sleep(STEP_SECONDS)
        with path.open("a") as file:
            file.write(f"{num_done}\n")
        control.heartbeat(num_done + 1)
    return RunStatus.FINISHED


def start_child(run: RunDirectory) -> None:
    child = subprocess.Popen([sys.executable, "-c", DEAF])
    (run.path / "child.pid").write_text(str(child.pid))


def leave_orphan(run: RunDirectory) -> None:
    """A process of a session of its own whose parent is gone, so that no list of children names it."""
    start = f"subprocess.Popen([sys.executable, '-c', {DEAF!r}], stdout=subprocess.DEVNULL, start_new_session=True)"
    command = [sys.executable, "-c", f"import subprocess, sys; print({start}.pid)"]
    (run.path / "child.pid").write_bytes(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def start_ray(run: RunDirectory) -> None:
    """A Ray of this process alone, with a worker that is busy for long."""
    import ray

    context = ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000)
    ray.remote(lambda: time.sleep(600)).remote()
    (run.path / "session").write_text(context.address_info["session_dir"])


LEFTOVERS = {"starts-child": start_child, "leaves-orphan": leave_orphan, "starts-ray": start_ray}


def resume_step(run: RunDirectory) -> int:
    newest = open_newest(run.checkpoints_path, lambda it: int(json.loads((it.path / "toy.json").read_text())["step"]))
    return 0 if newest is None else newest[1]


def save(run: RunDirectory, recorder: RunRecorder, step: int) -> None:
    recorder.settle()
    checkpoint = save_checkpoint(
        run.checkpoints_path, step, lambda it: (it.path / "toy.json").write_text(json.dumps({"step": step}))
    )
    recorder.checkpoint(step, checkpoint.path)


if __name__ == "__main__":
    sys.exit(
        main(sys.argv[1:], {"embedded": lambda: run_toy, "verl": lambda: run_toy, "eval": lambda: run_toy_evaluation})
    )
