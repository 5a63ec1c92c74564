"""The loop of an attempt, with evaluation, checkpoints, recording and stops between steps; `exgrpo_step` in it."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from exgrpo.jobs.runs.checkpoints import (
    Checkpoint,
    DamagedCheckpointError,
    list_checkpoints,
    list_steps,
    open_newest,
    prune_checkpoints,
    save_checkpoint,
)
from exgrpo.jobs.runs.control import Control, Phase, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import best_checkpoint
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.run_components import RunComponents, Validator
from exgrpo.jobs.training.run_health import RunHealth
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.config import SamplerCorrection
from exgrpo_core.errors import DamagedStateError
from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from exgrpo_core.experience_management.storage.segment_store import remove_old_segments
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.state import BUFFER_FILE, ExGRPOState
from exgrpo_core.step_report import StepReport

logger = logging.getLogger(__name__)
T = TypeVar("T")


class AttemptLoop(ABC):
    """One attempt of one run, from its newest whole checkpoint (or the start) to its last step."""

    def __init__(
        self, spec: TrainSpec, run_directory: Path, components: RunComponents, recorder: RunRecorder, control: Control
    ) -> None:
        self.spec = spec
        self.components = components
        self.recorder = recorder
        self.control = control
        self.validator = Validator(spec, components, recorder, control)
        self.health = RunHealth(
            components.questions,
            components.unknown_token_id,
            components.max_gap,
            requires_think_end=spec.data.requires_think_end,
            is_corrected=spec.algorithm.sampler_correction is not SamplerCorrection.NONE,
        )
        self.checkpoints = run_directory / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def take_step(self, step: int) -> None:
        """Do step number `step`, record it and log it."""

    @abstractmethod
    def write(self, checkpoint: Checkpoint) -> None:
        """Write what a later attempt needs to continue after the last step."""

    def is_last(self, step: int) -> bool:
        """Return whether the run ends after step number `step`, which is done."""
        return step >= self.spec.num_steps

    def train(self, step: int, *, is_new: bool) -> RunStatus:
        """Train on after `step` until the last one or until a stop is requested; return `finished` or `stopped`."""
        self.control.heartbeat(step)
        if is_new:
            self.validator.evaluate(0, is_end=True)
        saved_step = None if is_new else step
        while not self.is_last(step):
            if self.control.stop_requested():
                if saved_step != step:
                    self._save(step)
                return RunStatus.STOPPED
            step += 1
            with self.control.phase(Phase.STEP):
                self.take_step(step)
            self.control.heartbeat(step)
            is_last = self.is_last(step)
            self.validator.evaluate(step, is_end=is_last)
            if step % self.spec.checkpoint_interval == 0 or is_last:
                self._save(step)
                saved_step = step
        return RunStatus.FINISHED

    def record(self, report: StepReport) -> None:
        """Record a step, with what a person should know of it.

        Raises:
            TrainingError: What was sampled is not what is trained.
        """
        self.health.look_at(report)
        self.recorder.step(report)
        for notice in report.notices:
            logger.warning("step %d: %s", report.step, notice)
        self.health.check_gap(report)

    def newest(self, read: Callable[[Checkpoint], T]) -> T | None:
        """Restore the engine from the newest whole checkpoint and return what `read` made of it, None without one."""

        def restore(checkpoint: Checkpoint) -> T:
            try:
                self.components.engine.restore(checkpoint.policy)
            except DamagedStateError as error:
                raise DamagedCheckpointError(str(error)) from error
            return read(checkpoint)

        try:
            newest = open_newest(self.checkpoints, restore, leaves_to_ranks=True)
        except DamagedCheckpointError as error:
            raise TrainingError(str(error)) from error
        if newest is None:
            return None
        checkpoint, content = newest
        logger.info("resuming from step %d", checkpoint.step)
        return content

    def _save(self, step: int) -> None:
        keep_checkpoint(self.checkpoints, step, self.write, self.spec, self.recorder, self.control)


def keep_checkpoint(
    folder: Path,
    step: int,
    write: Callable[[Checkpoint], None],
    spec: TrainSpec,
    recorder: RunRecorder,
    control: Control,
) -> None:
    """Write a checkpoint once all steps before it are recorded, record it, and remove those that are not kept."""
    with control.phase(Phase.CHECKPOINT):
        recorder.settle()
        checkpoint = save_checkpoint(folder, step, write)
        recorder.checkpoint(step, checkpoint.path)
    best = best_checkpoint(RunDirectory(folder.parent), list_steps(folder)) if spec.keeps_best_checkpoint else None
    prune_checkpoints(folder, spec.num_checkpoints_kept, best)
    logger.info("step %d: checkpoint written", step)


class TrainingLoop(AttemptLoop):
    """`exgrpo_step` on an engine."""

    state: ExGRPOState

    @property
    def _segments(self) -> Path:
        return self.checkpoints.parent / "buffer"

    def run(self) -> RunStatus:
        """Train until the last step or until a stop is requested; return `finished` or `stopped`."""
        self.components.record_start(self.recorder)
        self._segments.mkdir(parents=True, exist_ok=True)
        self.state, is_new = self._open_state()
        try:
            return self.train(self.state.step, is_new=is_new)
        finally:
            # Whatever it could not write has been raised by then, or is behind the newest checkpoint.
            with suppress(OSError):
                self.state.replay_buffer.close()

    def is_last(self, step: int) -> bool:
        """Return whether the last step is done, or the run's tokens are generated."""
        budget = self.spec.max_generated_tokens
        return super().is_last(step) or (budget is not None and self.state.num_generated_tokens >= budget)

    def take_step(self, step: int) -> None:
        """Do a step of Algorithm 1."""
        is_last = step == self.spec.num_steps
        report = exgrpo_step(self.state, self.components.engine, self.spec.algorithm, is_last=is_last)
        try:
            if self.components.reward_parts is not None:
                self.components.reward_parts.complete(report)
        finally:
            self.record(report)
        self._log_step(report.metrics, step)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write policy and experience."""
        self.components.engine.save(checkpoint.policy)
        self.state.save(checkpoint.experience)

    def _save(self, step: int) -> None:
        super()._save(step)
        if self.spec.algorithm.limits_buffer:
            kept = [Checkpoint(0, path).experience / BUFFER_FILE for path in list_checkpoints(self.checkpoints)]
            with suppress(BufferCorruptionError):
                states = [read_snapshot(path)[0]["segments"] for path in kept]
                remove_old_segments(self._segments, {segment["name"] for state in states for segment in state})

    def _open_state(self) -> tuple[ExGRPOState, bool]:
        config, components = self.spec.algorithm, self.components
        state = self.newest(self._read_state)
        if state is not None:
            return state, False
        return ExGRPOState.create(self._segments, components.questions, config, components.external), True

    def _read_state(self, checkpoint: Checkpoint) -> ExGRPOState:
        config, components = self.spec.algorithm, self.components
        try:
            state = ExGRPOState.restore(
                self._segments, checkpoint.experience, components.questions, config, components.external
            )
        except BufferCorruptionError as error:
            raise DamagedCheckpointError(str(error)) from error
        if state.step != checkpoint.step:
            raise DamagedCheckpointError(f"{checkpoint.path} holds the state of step {state.step}")
        return state

    def _log_step(self, metrics: dict[str, float], step: int) -> None:
        logger.info(
            "step %d/%d: reward %.3f, entropy %.3f, replayed %d, buffer %d, retired %d, %.2f s",
            step,
            self.spec.num_steps,
            metrics["reward/mean"],
            metrics.get("policy/entropy", float("nan")),
            metrics["replay/num_replayed"],
            metrics["buffer/num_questions"],
            metrics["buffer/num_retired"],
            metrics["seconds/step"],
        )
