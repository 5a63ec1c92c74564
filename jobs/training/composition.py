"""The composition root of the embedded engine: a specification becomes model, data, grader and loop."""

import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from exgrpo.jobs.runs.checkpoints import Checkpoint, DamagedCheckpointError, open_newest
from exgrpo.jobs.runs.control import Control, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.base import ANSWER_ALONE
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.reward_function import RewardFunction
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.demonstrations import read_demonstrations, read_external
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.first_look import MAX_GAP, open_model
from exgrpo.jobs.training.engines.embedded.lora import LoraSettings
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, train_adapters
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo.jobs.training.engines.tokenizer import unknown_token
from exgrpo.jobs.training.reward_parts import RewardParts, open_reward_parts
from exgrpo.jobs.training.run_components import BenchmarkReader, RunComponents, no_benchmarks
from exgrpo.jobs.training.run_data import log_first_prompt, log_leaks, open_data
from exgrpo.jobs.training.training_loop import AttemptLoop, TrainingLoop
from exgrpo_core.errors import EngineError
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)


def run_training(
    spec: TrainSpec,
    run: RunDirectory,
    recorder: RunRecorder,
    control: Control,
    read_benchmarks: BenchmarkReader = no_benchmarks,
) -> RunStatus:
    """Run or resume reinforcement or supervised fine-tuning; return `finished` or `stopped`.

    Raises:
        TrainingError: It cannot start or continue; one sentence says why.
        StoppedBeforeStartError: A stop was requested while the initial model was made.
    """
    try:
        if spec.sft is not None:
            with open_reward(spec) as reward:
                loaded = _load(spec, control.stop_requested, run.checkpoints_path, read_benchmarks)
                demonstrations = read_demonstrations(spec, loaded.questions, loaded.policy.tokenizer)
                engine = _engine(spec, reward, loaded, OptimSettings(**dict(spec.optim), decay_steps=spec.num_steps))
                unknown = unknown_token(loaded.policy.tokenizer)
                sets = (loaded.questions, loaded.held_out)
                components = RunComponents(engine, reward, *sets, {}, loaded.benchmarks, unknown_token_id=unknown)
                return SftLoop(spec, run.path, components, recorder, control).run(demonstrations, engine.imitate)
        with open_components(spec, control.stop_requested, run.checkpoints_path, read_benchmarks) as components:
            return TrainingLoop(spec, run.path, components, recorder, control).run()
    except (EngineError, DataError) as error:
        raise TrainingError(str(error)) from error


@contextmanager
def open_components(
    spec: TrainSpec,
    should_stop: Callable[[], bool] | None = None,
    checkpoints: Path | None = None,
    read_benchmarks: BenchmarkReader = no_benchmarks,
) -> Iterator[RunComponents]:
    """Yield engine, grader and data of a specification, and end the grader's processes afterwards.

    `checkpoints` is the run's folder of them, one of which gives the model if the folder of `model.source` is gone.

    Raises:
        TrainingError: Data or model cannot be used; the message names the file, row or setting.
        StoppedBeforeStartError: `should_stop` became true while the initial model was made.
    """
    with ExitStack() as stack:
        reward = stack.enter_context(open_reward(spec))
        terms = None
        if spec.data.rewards != ANSWER_ALONE:
            terms = stack.enter_context(open_reward_parts(reward, spec.data.rewards))
        yield _components(spec, reward, terms, _load(spec, should_stop, checkpoints, read_benchmarks))


@dataclass(frozen=True, slots=True)
class _Loaded:
    policy: PolicyModel
    questions: list[Question]
    held_out: list[Question]
    benchmarks: dict[str, list[Question]]


def _load(
    spec: TrainSpec,
    should_stop: Callable[[], bool] | None,
    checkpoints: Path | None,
    read_benchmarks: BenchmarkReader,
) -> _Loaded:
    if spec.model.num_threads is not None:
        torch.set_num_threads(spec.model.num_threads)
    data = open_data(spec, should_stop)
    source = data.model_source
    is_path = Path(source).is_absolute() or "@" in source
    if checkpoints is not None and is_path and not Path(source).exists():
        source = _checkpointed_model(spec, checkpoints) or source
    policy = open_model(source, spec.model.device, spec.model.revision)
    if spec.model.lora is not None:
        base, run_path = source, checkpoints and checkpoints.resolve().parent
        if run_path and run_path in Path(source).parents:
            base = os.path.relpath(source, run_path / "checkpoints" / "step" / "policy")  # as seen from any adapters
        settings = LoraSettings(**dict(spec.model.lora), base=base, base_revision=spec.model.revision)
        train_adapters(policy, settings, spec.seed)
    questions, held_out = data.encode(policy.tokenizer)
    log_first_prompt(questions, policy.tokenizer)
    benchmarks = read_benchmarks(spec, policy.tokenizer)
    log_leaks(questions, benchmarks)
    return _Loaded(policy, questions, held_out, benchmarks)


def _checkpointed_model(spec: TrainSpec, checkpoints: Path) -> str | None:
    """Return the newest whole checkpoint's policy; None where KL term or adapters need the model of the beginning."""
    if spec.algorithm.kl_coefficient > 0.0 or spec.model.lora is not None:
        return None
    try:
        newest = open_newest(checkpoints, lambda checkpoint: str(checkpoint.policy))
    except DamagedCheckpointError as error:
        raise TrainingError(str(error)) from error
    return None if newest is None else newest[1]


def _components(spec: TrainSpec, reward: RewardFunction, terms: RewardParts | None, loaded: _Loaded) -> RunComponents:
    engine = _engine(spec, terms or reward, loaded, OptimSettings(**dict(spec.optim)))
    external = read_external(spec, loaded.questions, loaded.policy.tokenizer)
    return RunComponents(
        engine,
        reward,
        loaded.questions,
        loaded.held_out,
        external,
        loaded.benchmarks,
        terms,
        unknown_token(loaded.policy.tokenizer),
        MAX_GAP[loaded.policy.compute_dtype],
    )


def _engine(spec: TrainSpec, reward: RewardFunction, loaded: _Loaded, optim: OptimSettings) -> EmbeddedEngine:
    engine = EmbeddedEngine(loaded.policy, reward, spec.algorithm, optim, spec.seed, spec.recording.keeps_seen)
    # Modules and questions live as long as the process: without them, later collections and so steps are shorter.
    gc.collect()
    gc.freeze()
    return engine


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
