"""A worker whose phases last as long as on GPUs, times a scale, and whose writes hang while a file says so."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exgrpo_core.experience_management.storage import append_file
from jobs.recording.recorder import RunRecorder
from jobs.runs.control import Control, RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec
from jobs.training.training_loop import TrainingLoop
from jobs.worker.__main__ import main
from tests.faults.phased_training import PhasedNumbers
from tests.faults.small_training import small_parts

TIME_SCALE = float(os.environ.get("EXGRPO_FAULTS_TIME_SCALE", "0.003"))
GPU_SECONDS = {"r": 100.0, "s": 10.0, "u": 40.0, "e": 60.0, "w": 180.0}
SAID_FILE = "phases"
HANG_FILE = "hang"


def scaled_seconds() -> dict[str, float]:
    return {letter: seconds * TIME_SCALE for letter, seconds in GPU_SECONDS.items()}


def hanging(write: Callable[..., Any], flag: Path) -> Callable[..., Any]:
    def write_later(*arguments: Any) -> Any:
        while flag.exists():
            time.sleep(0.02)
        return write(*arguments)

    return write_later


def run_like_on_gpus(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    flag = run.path.parent.parent / HANG_FILE
    os.fsync, os.pwrite = hanging(os.fsync, flag), hanging(os.pwrite, flag)
    append_file._sync_data = hanging(append_file._sync_data, flag)
    with (run.path.parent.parent / SAID_FILE).open("a", buffering=1) as said:
        engine = PhasedNumbers(lambda letter: said.write(f"{letter}\n"), scaled_seconds())
        return TrainingLoop(spec, run.path, small_parts(engine), recorder, control).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], {"embedded": lambda: run_like_on_gpus}))
