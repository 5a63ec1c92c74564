"""Supervised fine-tuning: batches of demonstrations, an optimizer step each, with the runs' checkpoints and scores."""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from exgrpo_core.step_report import StepReport
from jobs.engines.embedded.packing import TokenSequence
from jobs.runs.checkpoints import Checkpoint
from jobs.runs.control import RunStatus
from jobs.training.training_loop import AttemptLoop

logger = logging.getLogger(__name__)


class SftLoop(AttemptLoop):
    """Demonstrations are shuffled again each epoch; the order follows from seed and epoch alone."""

    demonstrations: Sequence[TokenSequence]
    imitate: Callable[[Sequence[TokenSequence]], dict[str, float]]
    """Takes one optimizer step and returns its metrics."""

    def run(
        self,
        demonstrations: Sequence[TokenSequence],
        imitate: Callable[[Sequence[TokenSequence]], dict[str, float]],
    ) -> RunStatus:
        """Train until the last step or until a stop is requested; return `finished` or `stopped`."""
        self.demonstrations, self.imitate = demonstrations, imitate
        self.components.record_start(self.recorder)
        step = self.newest(lambda checkpoint: checkpoint.step)
        return self.train(step or 0, is_new=step is None)

    def take_step(self, step: int) -> None:
        """Imitate the next batch."""
        began_at = time.perf_counter()
        indexes = batch_indexes(len(self.demonstrations), self.spec.algorithm.batch_size, step, self.spec.seed)
        metrics = self.imitate([self.demonstrations[item] for item in indexes])
        metrics["seconds/update"] = metrics["seconds/step"] = time.perf_counter() - began_at
        self.record(StepReport(step, is_replay_open=False, groups=[], metrics=metrics))
        logger.info("step %d/%d: loss %.4f", step, self.spec.num_steps, metrics["loss/sft"])

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the policy."""
        self.components.engine.save(checkpoint.policy)


def batch_indexes(num_demonstrations: int, batch_size: int, step: int, seed: int) -> list[int]:
    """Return the demonstrations of step number `step` (from 1): the next ones of concatenated, shuffled epochs."""
    positions = range((step - 1) * batch_size, step * batch_size)
    epochs = {
        number: np.random.default_rng([seed, number]).permutation(num_demonstrations)
        for number in range(positions[0] // num_demonstrations, positions[-1] // num_demonstrations + 1)
    }
    return [int(epochs[position // num_demonstrations][position % num_demonstrations]) for position in positions]
