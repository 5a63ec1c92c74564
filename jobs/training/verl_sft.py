"""Supervised fine-tuning by verl's SFT trainer: a separate program, followed and recorded like any run.

Its checkpoints become the run's: `policy` is a Hugging Face model, `trainer` has what verl needs to resume. verl's
trainer scores no answers; `exgrpo eval RUN@STEP` does.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.checkpoints import TOKENIZER_FILES, Checkpoint, DamagedCheckpointError, open_newest
from exgrpo.jobs.runs.control import Control, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.end_with_starter import STARTER_VARIABLE
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.demonstrations import read_demonstrations
from exgrpo.jobs.training.engines.embedded.model import refuse_odd_files
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer, unknown_token
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import VERL_FOLDER
from exgrpo.jobs.training.engines.verl_ray.sft_overrides import (
    CHECKPOINTS_FOLDER,
    DEMONSTRATIONS_FILE,
    ENTRY_MODULE,
    sft_run_overrides,
)
from exgrpo.jobs.training.run_data import log_first_prompt, open_data
from exgrpo.jobs.training.run_health import unknown_token_notices
from exgrpo.jobs.training.training_loop import keep_checkpoint
from exgrpo_core.durable_files import link_or_copy
from exgrpo_core.errors import EngineError
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport

logger = logging.getLogger(__name__)

METRIC_NAMES = {"train/loss": "loss/sft", "train/grad_norm": "optim/gradient_norm"}
"""verl's names of the recorded metrics, with this project's."""
TRAINER_FOLDER = "trainer"
_MODEL_FOLDER = "huggingface"
_STEP_PREFIX = "global_step_"
_TRACKER_FILE = "latest_checkpointed_iteration.txt"
_POLL_SECONDS = 0.3
_LEAVE_SECONDS = 20.0


def run_sft(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    """Run or resume supervised fine-tuning; return `finished` or `stopped`; it continues from its newest checkpoint.

    Raises:
        TrainingError: It cannot start or continue; one sentence says why.
        StoppedBeforeStartError: A stop was requested while the initial model was made.
    """
    folder = run.path / VERL_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        newest = open_newest(run.checkpoints_path, lambda checkpoint: checkpoint)
        data = open_data(spec, control.stop_requested)
        refuse_odd_files(data.model_source)
        tokenizer = load_tokenizer(data.model_source)
        questions, held_out = data.encode(tokenizer)
        log_first_prompt(questions, tokenizer)
        for notice in unknown_token_notices(questions, unknown_token(tokenizer)):
            logger.warning("%s", notice)
        write_demonstrations(read_demonstrations(spec, questions, tokenizer), folder / DEMONSTRATIONS_FILE)
    except (DataError, DamagedCheckpointError, EngineError) as error:
        raise TrainingError(str(error)) from error
    recorder.questions(questions, "training")
    recorder.questions(held_out, "held_out")
    step = 0 if newest is None else newest[0].step
    if step >= spec.num_steps:
        return RunStatus.FINISHED
    resume_path = None if newest is None else _unpack(newest[0], folder / "resume")
    overrides = sft_run_overrides(spec, run.path, data.model_source, resume_path)
    return SftFollower(spec, run, recorder, control, data.model_source).follow(overrides, step)


def write_demonstrations(demonstrations: Sequence[TokenSequence], path: Path) -> None:
    """Write demonstrations as `DemonstrationDataset` reads them."""
    columns = {
        "prompt_ids": [demonstration.prompt_ids.tolist() for demonstration in demonstrations],
        "response_ids": [item.token_ids.tolist() for item in demonstrations],
    }
    pq.write_table(pa.table(columns), path)


class SftFollower:
    """Starts verl's trainer, records what it logs, keeps its checkpoints and ends it when a stop is requested."""

    def __init__(
        self, spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control, model_source: str
    ) -> None:
        self._spec = spec
        self._run = run
        self._recorder = recorder
        self._control = control
        self._model_source = Path(model_source)
        self._folder = run.path / VERL_FOLDER
        self._metrics_path = self._folder / "metrics.jsonl"
        self._metrics_offset = 0
        self._polled_at = time.monotonic()
        self._saved_step = 0

    def follow(self, overrides: Sequence[str], step: int) -> RunStatus:
        """Let verl's trainer run to its end or until a stop; `step` is that of the checkpoint that it resumes.

        Raises:
            TrainingError: It failed.
        """
        self._saved_step = step
        self._control.heartbeat(step)
        process = self._start(overrides)
        is_stopped = False
        try:
            while process.poll() is None and not (is_stopped := self._control.stop_requested()):
                time.sleep(_POLL_SECONDS)
                self._poll()
        finally:
            _end(process)
        self._poll()
        shutil.rmtree(self._folder / CHECKPOINTS_FOLDER, ignore_errors=True)
        if is_stopped:
            return RunStatus.STOPPED
        if process.returncode != 0:
            raise TrainingError(f"verl's SFT trainer ended with exit code {process.returncode}; see log.txt.")
        return RunStatus.FINISHED

    def _start(self, overrides: Sequence[str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "exgrpo.jobs.runs.launchers.end_with_starter"]
        command += [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc_per_node={self._spec.verl.gpus_per_node}", "-m", ENTRY_MODULE, *overrides]
        environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT), "VERL_FILE_LOGGER_PATH": str(self._metrics_path)}
        environment |= self._spec.verl.ray.environment
        environment[STARTER_VARIABLE] = str(os.getpid())
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    def _poll(self) -> None:
        """Record the steps and checkpoints that are new since the last poll."""
        # Read before the steps: verl logs a step before it writes its checkpoint, so the step of each one is recorded.
        checkpoints = self._new_checkpoints()
        for step, metrics in self._new_steps():
            self._recorder.step(StepReport(step, is_replay_open=False, groups=[], metrics=metrics))
            self._control.heartbeat(step)
        for step in checkpoints:
            self._save(step)
        for path in self._verl_checkpoints():
            if _step_of(path) < self._saved_step:
                shutil.rmtree(path)

    def _new_steps(self) -> list[tuple[int, dict[str, float]]]:
        if not self._metrics_path.is_file():
            return []
        with self._metrics_path.open("rb") as file:
            file.seek(self._metrics_offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._metrics_offset += len(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            return []
        seconds = self._seconds([line["step"] for line in lines])
        return [
            (
                line["step"],
                {value: float(line["data"][name]) for name, value in METRIC_NAMES.items() if name in line["data"]}
                | seconds,
            )
            for line in lines
        ]

    def _seconds(self, steps: Sequence[int]) -> dict[str, float]:
        """Return the seconds of each new step; nothing if the time includes a start or the writing of a checkpoint."""
        now = time.monotonic()
        seconds, self._polled_at = (now - self._polled_at) / len(steps), now
        # verl writes a checkpoint after it has logged its step; every start is from a checkpoint or step 0.
        has_more = any((step - 1) % self._spec.checkpoint_interval == 0 for step in steps)
        return {} if has_more else {"seconds/step": seconds}

    def _new_checkpoints(self) -> list[int]:
        """Return the steps of verl's whole checkpoints since the last poll, at most as many as the run keeps."""
        try:
            newest = int((self._folder / CHECKPOINTS_FOLDER / _TRACKER_FILE).read_text())
        except (OSError, ValueError):
            return []
        steps = sorted(map(_step_of, self._verl_checkpoints()))
        return [step for step in steps if self._saved_step < step <= newest][-self._spec.num_checkpoints_kept :]

    def _verl_checkpoints(self) -> list[Path]:
        return [*(self._folder / CHECKPOINTS_FOLDER).glob(f"{_STEP_PREFIX}*")]

    def _save(self, step: int) -> None:
        source = self._folder / CHECKPOINTS_FOLDER / f"{_STEP_PREFIX}{step}"

        def write(checkpoint: Checkpoint) -> None:
            _link_tree(source / _MODEL_FOLDER, checkpoint.policy)
            _link_tree(source, checkpoint.path / TRAINER_FOLDER, leaves_out=_MODEL_FOLDER)
            self._keep_tokenizer(checkpoint.policy)

        keep_checkpoint(self._run.checkpoints_path, step, write, self._spec, self._recorder, self._control)
        self._saved_step = step

    def _keep_tokenizer(self, policy: Path) -> None:
        """Replace the tokenizer that verl wrote by the model's: verl changes it when loading."""
        for name in TOKENIZER_FILES:
            if (self._model_source / name).is_file():
                (policy / name).unlink(missing_ok=True)
                shutil.copy2(self._model_source / name, policy / name)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix(_STEP_PREFIX))


def _unpack(checkpoint: Checkpoint, folder: Path) -> Path:
    target = folder / f"{_STEP_PREFIX}{checkpoint.step}"
    _link_tree(checkpoint.path / TRAINER_FOLDER, target)
    _link_tree(checkpoint.policy, target / _MODEL_FOLDER)
    return target


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for proc in psutil.wait_procs(family, timeout=1.0)[1]:
        proc.kill()


def _link_tree(source: Path, target: Path, leaves_out: str = "") -> None:
    ignored = shutil.ignore_patterns(leaves_out) if leaves_out else None
    shutil.copytree(source, target, copy_function=link_or_copy, ignore=ignored)
