"""The composition root of the embedded engine: a specification becomes model, data, grader and loop."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from exgrpo_core.errors import EngineError
from exgrpo_core.run_files.recorder import RunRecorder
from exgrpo_core.types import Question
from jobs.engines.embedded.engine import EmbeddedEngine
from jobs.engines.embedded.first_look import MAX_GAP, open_model
from jobs.engines.embedded.lora import LoraSettings
from jobs.engines.embedded.model import PolicyModel, train_adapters
from jobs.engines.embedded.update import OptimSettings
from jobs.engines.tokenizer import unknown_token
from jobs.grading.reward_function import RewardFunction
from jobs.runs.checkpoints import DamagedCheckpointError, open_newest
from jobs.runs.control import Control, RunStatus, TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.base import ANSWER_ALONE, LoraSpec, OptimSpec
from jobs.specs.train import TrainSpec
from jobs.training.data_rows import DataError
from jobs.training.demonstrations import read_demonstrations, read_external
from jobs.training.reward_parts import RewardParts, open_reward_parts
from jobs.training.run_components import BenchmarkReader, RunComponents, no_benchmarks
from jobs.training.run_data import log_first_prompt, log_leaks, open_data, open_reward
from jobs.training.sft_loop import SftLoop
from jobs.training.training_loop import TrainingLoop


def run_training(
    spec: TrainSpec,
    run: RunDirectory,
    recorder: RunRecorder,
    control: Control,
    read_benchmarks: BenchmarkReader = no_benchmarks,
) -> RunStatus:
    """Run or resume a specification; return `finished` or `stopped`.

    Raises:
        TrainingError: It cannot start or continue; one sentence says why.
        StoppedBeforeStartError: A stop was requested while the initial model was made.
    """
    try:
        with open_components(spec, control.stop_requested, run.checkpoints_path, read_benchmarks) as components:
            return TrainingLoop(spec, run.path, components, recorder, control).run()
    except (EngineError, DataError) as error:
        raise TrainingError(str(error)) from error


def run_sft(
    spec: TrainSpec,
    run: RunDirectory,
    recorder: RunRecorder,
    control: Control,
    read_benchmarks: BenchmarkReader = no_benchmarks,
) -> RunStatus:
    """Run or resume supervised fine-tuning; return `finished` or `stopped`.

    Raises:
        TrainingError: It cannot start or continue; one sentence says why.
        StoppedBeforeStartError: A stop was requested while the initial model was made.
    """
    try:
        with open_reward(spec) as reward:
            loaded = _load(spec, control.stop_requested, run.checkpoints_path, read_benchmarks)
            demonstrations = read_demonstrations(spec, loaded.questions, loaded.policy.tokenizer)
            engine = _engine(spec, reward, loaded, replace(optim_settings(spec.optim), decay_steps=spec.num_steps))
            components = RunComponents(
                engine, reward, loaded.questions, loaded.held_out, {}, loaded.benchmarks,
                unknown_token_id=unknown_token(loaded.policy.tokenizer),
            )  # fmt: skip
            return SftLoop(spec, run.path, components, recorder, control).run(demonstrations, engine.imitate)
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
        train_adapters(policy, _lora_settings(spec.model.lora, base, spec.model.revision), spec.seed)
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
    engine = _engine(spec, terms or reward, loaded, optim_settings(spec.optim))
    external = read_external(spec, loaded.questions, loaded.policy.tokenizer)
    return RunComponents(
        engine,
        reward,
        loaded.questions,
        loaded.held_out,
        external,
        loaded.benchmarks,
        terms.take_metrics if terms else dict,
        unknown_token(loaded.policy.tokenizer),
        MAX_GAP[loaded.policy.compute_dtype],
    )


def _engine(spec: TrainSpec, reward: RewardFunction, loaded: _Loaded, optim: OptimSettings) -> EmbeddedEngine:
    engine = EmbeddedEngine(loaded.policy, reward, spec.algorithm, optim, spec.seed)
    # Modules and questions live as long as the process: without them, later collections and so steps are shorter.
    gc.collect()
    gc.freeze()
    return engine


def _lora_settings(spec: LoraSpec, base: str, base_revision: str | None) -> LoraSettings:
    return LoraSettings(spec.rank, spec.alpha, spec.target_modules, base, base_revision)


def optim_settings(spec: OptimSpec) -> OptimSettings:
    """Return the engine's optimizer settings."""
    return OptimSettings(
        learning_rate=spec.learning_rate,
        weight_decay=spec.weight_decay,
        betas=(spec.beta1, spec.beta2),
        max_gradient_norm=spec.max_gradient_norm,
        warmup_steps=spec.warmup_steps,
        skips_non_finite=spec.non_finite == "skip",
    )
