"""The toy worker as a verl job: on a cluster it may also leave something behind on purpose."""

import subprocess
import sys
import time

from jobs.recording.recorder import RunRecorder
from jobs.runs.control import Control, RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec
from jobs.worker.worker import main
from tests.jobs.supervisor.toy_worker import run_toy

ORPHAN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def run_on_ray(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    sys.stdout.write("The toy speaks.\n")
    if "leaves-orphan" in spec.tags:
        leave_orphan(run)
    if "starts-ray" in spec.tags:
        start_ray(run)
    return run_toy(spec, run, recorder, control)


def leave_orphan(run: RunDirectory) -> None:
    """A process of a session of its own whose parent is gone, so that no list of children names it."""
    code = f"""
import subprocess, sys
orphan = subprocess.Popen([sys.executable, "-c", {ORPHAN!r}], stdout=subprocess.DEVNULL, start_new_session=True)
print(orphan.pid)
"""
    pid = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    (run.path / "orphan.pid").write_bytes(pid)


def start_ray(run: RunDirectory) -> None:
    """A Ray of this process alone, with a worker that is busy for long."""
    import ray

    context = ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000)
    ray.remote(lambda: time.sleep(600)).remote()
    (run.path / "session").write_text(context.address_info["session_dir"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], {"verl": lambda: run_on_ray}))
