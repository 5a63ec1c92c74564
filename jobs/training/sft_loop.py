"""Supervised fine-tuning: batches of demonstrations, an optimizer step each, with the runs' checkpoints and scores."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exgrpo_core.step_report import StepReport
from jobs.engines.embedded.packing import TokenSequence
from jobs.recording.recorder import RunRecorder
from jobs.runs.checkpoints import Checkpoint, DamagedCheckpointError, open_newest, prune_checkpoints, save_checkpoint
from jobs.runs.control import Control, Phase, RunStatus, TrainingError
from jobs.specs.train import TrainSpec
from jobs.training.run_components import RunComponents
from jobs.training.validation import Validator

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SftComponents:
    """The components of one run that the composition root builds."""

    components: RunComponents
    imitate: Callable[[Sequence[TokenSequence]], dict[str, float]]
    """Takes one optimizer step and returns its metrics."""
    demonstrations: Sequence[TokenSequence]


class SftLoop:
    """One attempt of one run, from its newest whole checkpoint (or the start) to its last step.

    Demonstrations are shuffled again each epoch; the order follows from seed and epoch alone.
    """

    def __init__(
        self, spec: TrainSpec, run_directory: Path, sft: SftComponents, recorder: RunRecorder, control: Control
    ) -> None:
        self.spec = spec
        self.sft = sft
        self.recorder = recorder
        self.control = control
        self.validator = Validator(spec, sft.components, recorder, control)
        self.checkpoints = run_directory / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def run(self) -> RunStatus:
        """Train until the last step or until a stop is requested; return `finished` or `stopped`."""
        self.sft.components.record_start(self.recorder)
        step = saved_step = self._restore()
        self.control.heartbeat(step)
        if step == 0:
            self.validator.evaluate(0)
        while step < self.spec.num_steps:
            if self.control.stop_requested():
                if saved_step != step:
                    self._save(step)
                return RunStatus.STOPPED
            step += 1
            with self.control.phase(Phase.STEP):
                self._step(step)
            self.control.heartbeat(step)
            self.validator.evaluate(step)
            if step % self.spec.checkpoint_interval == 0 or step == self.spec.num_steps:
                self._save(step)
                saved_step = step
        return RunStatus.FINISHED

    def _step(self, step: int) -> None:
        began_at = time.perf_counter()
        indexes = batch_indexes(len(self.sft.demonstrations), self.spec.algorithm.batch_size, step, self.spec.seed)
        metrics = self.sft.imitate([self.sft.demonstrations[item] for item in indexes])
        metrics["seconds/update"] = metrics["seconds/step"] = time.perf_counter() - began_at
        self.recorder.step(StepReport(step, is_replay_open=False, groups=[], metrics=metrics))
        logger.info("step %d/%d: loss %.4f", step, self.spec.num_steps, metrics["loss/sft"])

    def _restore(self) -> int:
        """Restore the newest whole checkpoint and return its step, 0 if there is none."""
        try:
            newest = open_newest(self.checkpoints, lambda checkpoint: checkpoint.step)
        except DamagedCheckpointError as error:
            raise TrainingError(str(error)) from error
        if newest is None:
            return 0
        checkpoint, step = newest
        logger.info("resuming from step %d", step)
        self.sft.components.engine.restore(checkpoint.policy)
        return step

    def _save(self, step: int) -> None:
        def write(checkpoint: Checkpoint) -> None:
            self.sft.components.engine.save(checkpoint.policy)

        with self.control.phase(Phase.CHECKPOINT):
            self.recorder.settle()
            checkpoint = save_checkpoint(self.checkpoints, step, write)
            self.recorder.checkpoint(step, checkpoint.path)
        prune_checkpoints(self.checkpoints, self.spec.num_checkpoints_kept)
        logger.info("step %d: checkpoint written", step)


def batch_indexes(num_demonstrations: int, batch_size: int, step: int, seed: int) -> list[int]:
    """Return the demonstrations of step number `step` (from 1): the next ones of concatenated, shuffled epochs."""
    positions = range((step - 1) * batch_size, step * batch_size)
    epochs = {
        number: np.random.default_rng([seed, number]).permutation(num_demonstrations)
        for number in range(positions[0] // num_demonstrations, positions[-1] // num_demonstrations + 1)
    }
    return [int(epochs[position // num_demonstrations][position % num_demonstrations]) for position in positions]
