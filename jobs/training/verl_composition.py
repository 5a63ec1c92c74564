"""The composition root of the verl engine: Ray, verl's trainer, data, grader and the training loop of every engine."""

import contextlib
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from exgrpo.jobs.machine.hardware import GIB, list_gpus
from exgrpo.jobs.machine.memory_sharing import probe_sharing
from exgrpo.jobs.runs.control import Control, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.loggers import FanOutRecorder
from exgrpo.jobs.specs.base import ANSWER_ALONE
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.demonstrations import read_external
from exgrpo.jobs.training.engines.embedded.model import refuse_odd_files
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer, unknown_token
from exgrpo.jobs.training.pretrained.model_shapes import model_shape
from exgrpo.jobs.training.pretrained.sources import cache_directory
from exgrpo.jobs.training.reward_parts import open_reward_parts
from exgrpo.jobs.training.run_components import BenchmarkReader, RunComponents, no_benchmarks
from exgrpo.jobs.training.run_data import RunData, log_first_prompt, log_leaks, open_data
from exgrpo.jobs.training.run_health import VERL_MAX_GAP
from exgrpo.jobs.training.training_loop import TrainingLoop
from exgrpo_core.config import SamplerCorrection
from exgrpo_core.errors import EngineError, StoppedError
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.verl_plugin.settings import (
    EXTERNAL_MODULES_VARIABLE,
    PLATFORM_VARIABLE,
    UNSHARED_PLATFORM,
    UNSHARED_VARIABLES,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig
from pathlib import Path

import psutil
from huggingface_hub import snapshot_download

from exgrpo.jobs.training.pretrained.model_shapes import CONFIG_FILES, named_code
from exgrpo_core.bounded_json import UnreadableFileError, read_json

logger = logging.getLogger(__name__)

SHARED_MEMORY = "/dev/shm"
COMPILED_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable with the folder of what torch compiles, of vLLM too: verl turns vLLM's own cache off."""


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
    _prepare_environment()
    _choose_memory(spec)
    from ray.exceptions import RayError

    from exgrpo_core.verl_plugin.session import open_verl_loggers

    try:
        data = open_data(spec, control.stop_requested)
        config = _compose(spec, run, data)
        _check_shared_memory(spec, config)
        with contextlib.ExitStack() as at_end:
            followed = FanOutRecorder(recorder, open_verl_loggers(config))
            at_end.callback(followed.close_loggers)
            components = at_end.enter_context(_open(spec, data, config, read_benchmarks, control.stop_requested))
            return TrainingLoop(spec, run.path, components, followed, control).run()
    except StoppedError as error:
        logger.warning("%s The run continues from its newest checkpoint when it is resumed.", error)
        return RunStatus.STOPPED
    except RayError as error:  # first: what a worker raised is of its own type too
        raise TrainingError(why_it_ended(error)) from error
    except (EngineError, DataError) as error:
        raise TrainingError(str(error)) from error


def why_it_ended(error: Exception) -> str:
    """Return why an error of Ray ended a run, and what to do: a task's own error would come again."""
    from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError, WorkerCrashedError

    advice = "" if is_own_error(error) else "Resume the run: it continues from its newest checkpoint. "
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, EngineError):
        return str(cause)
    is_death = isinstance(cause, RayActorError | WorkerCrashedError | OutOfMemoryError)
    if is_death and not getattr(cause, "actor_init_failed", False):
        why = "one of its processes died, as when memory runs out or a machine fails."
    else:
        why = _last_line(error)
    return f"verl: {why} {advice}The whole traceback is in log.txt."


def is_own_error(error: Exception) -> bool:
    """Whether a task's own code raised an error of Ray; Ray gives such a one its cause's type besides its own.

    What a rank says when its peer is gone is not its own; gloo has no type for that.
    """
    from ray.exceptions import RayError, RayTaskError
    from torch.distributed import DistError

    cause = error.cause if isinstance(error, RayTaskError) else error
    return not isinstance(cause, RayError | DistError) and "gloo/transport" not in str(cause)


@contextlib.contextmanager
def open_components(spec: TrainSpec, run: RunDirectory) -> Iterator[RunComponents]:
    """Yield engine, grader and data of a specification; Ray and the grader's processes end afterwards.

    Raises:
        DataError: Data cannot be used; the message names the file, row or setting.
        EngineError: The model cannot be used.
    """
    data = open_data(spec)
    with _open(spec, data, _compose(spec, run, data), no_benchmarks) as components:
        yield components


def _compose(spec: TrainSpec, run: RunDirectory, data: RunData) -> "DictConfig":
    # verl reads its platform from the environment when it is imported.
    from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
    from exgrpo_core.verl_plugin.session import compose_config

    checked = with_checked_reward_model(spec)
    return compose_config([*ENGINE_OVERRIDES, *verl_overrides(checked, run.path, data.model_source)])


@contextlib.contextmanager
def _open(
    spec: TrainSpec,
    data: RunData,
    config: "DictConfig",
    read_benchmarks: BenchmarkReader,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Iterator[RunComponents]:
    from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine
    from exgrpo_core.verl_plugin.questions import find_end_tokens
    from exgrpo_core.verl_plugin.session import open_trainer

    refuse_odd_files(data.model_source)
    # verl's loader applies rules of the model's family to a plain tokenizer, which drop characters.
    tokenizer = load_tokenizer(data.model_source)
    check_vocabulary(spec, data.model_source, len(tokenizer))
    with (
        open_reward(spec) as reward,
        open_reward_parts(reward, spec.data.rewards) as rewards,
        open_trainer(config, process_variables(spec)) as trainer,
    ):
        trainer.stop_requested = stop_requested
        trainer.keeps_seen = spec.recording.keeps_seen
        questions, held_out = data.encode(tokenizer)
        log_first_prompt(questions, tokenizer)
        external = read_external(spec, questions, tokenizer)
        end_token_ids = find_end_tokens(data.model_source, tokenizer)
        seed = spec.seed if spec.verl.seeded_requests else None
        share = spec.verl.max_failed_share
        engine = WorkbenchVerlEngine(trainer, end_token_ids, spec.algorithm, seed, share)
        engine.skips_non_finite = spec.optim.non_finite == "skip"
        has_parts = spec.data.rewards != ANSWER_ALONE
        engine.weigh = rewards.weigh if has_parts else None
        benchmarks = read_benchmarks(spec, tokenizer)
        log_leaks(questions, benchmarks)
        parts, unknown = rewards if has_parts else None, unknown_token(tokenizer)
        yield RunComponents(engine, reward, questions, held_out, external, benchmarks, parts, unknown)


def check_vocabulary(spec: TrainSpec, source: str, num_tokens: int) -> None:
    """Refuse a model with so many token ids beyond its tokenizer that sampler and trainer could be other models.

    vLLM never samples such ids, and divides their probability among the others. If they are as likely as others, as in
    a model that is not trained, log-probs differ by the logarithm of the vocabulary's share.

    Raises:
        EngineError: It has, and nothing corrects the difference.
    """
    shape = model_shape(source, spec.model.revision)
    gap = 0.0 if shape is None else math.log(shape.vocabulary / num_tokens)
    if shape is not None and gap > VERL_MAX_GAP and spec.algorithm.sampler_correction is SamplerCorrection.NONE:
        raise EngineError(
            f"{source} has {shape.vocabulary:,} token ids and its tokenizer {num_tokens:,}: vLLM never samples the "
            f"others, so its log-probs may differ by {gap:.2g} nats from the trainer's, expected at most "
            f"{VERL_MAX_GAP:g}; give the model an embedding of the tokenizer's size "
            "(model.resize_token_embeddings(len(tokenizer)) in transformers), or set algorithm.sampler_correction.",
            "model.source",
            "algorithm.sampler_correction",
        )


def process_variables(spec: TrainSpec) -> dict[str, str]:
    """Return the variables of a local Ray's processes; a job that was submitted to a cluster got its own there.

    What they compile is kept for the next attempt: their temporary folder ends with this one.
    """
    if spec.verl.ray.address is not None:
        return {}
    # Of this process torch has set the variable itself, to a folder that a container or a start of the machine loses.
    return {COMPILED_VARIABLE: str(cache_directory() / "compiled"), **spec.verl.ray.environment}


def _prepare_environment() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _choose_memory(spec: TrainSpec) -> None:
    """Have verl send weights to vLLM by the host's memory where processes of this machine cannot share a GPU's."""
    is_elsewhere = spec.verl.ray.address is not None or spec.model.device == "cpu" or not list_gpus()
    if is_elsewhere or PLATFORM_VARIABLE in os.environ:
        return
    sharing = probe_sharing(sys.executable)
    if sharing.works is False:
        logger.warning(
            "Two processes of this machine cannot share a GPU's memory (%s): weights go to vLLM through /dev/shm, "
            "which is slower; docs/gpu.md says what containers need.",
            sharing.detail,
        )
        modules = os.environ.get(EXTERNAL_MODULES_VARIABLE, "")
        os.environ.update(UNSHARED_VARIABLES)
        os.environ[EXTERNAL_MODULES_VARIABLE] += f",{modules}" if modules else ""


def _check_shared_memory(spec: TrainSpec, config: "DictConfig") -> None:
    """Refuse a machine whose /dev/shm is too small for the weights that go through it."""
    if os.environ.get(PLATFORM_VARIABLE) != UNSHARED_PLATFORM:
        return
    bucket = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
    wanted, free = (bucket << 20) * spec.gpus_of_a_machine, psutil.disk_usage(SHARED_MEMORY).free
    if free < wanted:
        raise EngineError(
            f"processes of this machine cannot share a GPU's memory, and {SHARED_MEMORY} has {free / GIB:.1f} GiB free "
            f"of the {wanted / GIB:.1f} GiB that weights need instead; give the container the host's pid and ipc "
            f"namespaces (`--pid=host --ipc=host`), or a larger {SHARED_MEMORY} (`--shm-size`)."
        )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[-1] if lines else type(error).__name__
    return line if line.endswith((".", "!", "?")) else f"{line}."


def with_checked_reward_model(spec: TrainSpec) -> TrainSpec:
    """Return the specification with its reward model as a folder that holds no code; unchanged without one.

    Raises:
        EngineError: The model names code, or cannot be downloaded.
    """
    if spec.reward_model is None:
        return spec
    source = spec.reward_model.source
    folder = Path(source) if Path(source).is_dir() else _download(source)
    for name in CONFIG_FILES:
        field = _code_of(folder / name) if (folder / name).is_file() else None
        if field is not None:
            raise EngineError(
                f"{source} comes with code ({field} in {name}), which is never run; choose a "
                "model whose architecture transformers knows.",
                "reward_model.source",
            )
    checked = spec.reward_model.model_copy(update={"source": str(folder)})
    return spec.model_copy(update={"reward_model": checked})


def _download(source: str) -> Path:
    try:
        return Path(snapshot_download(source))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(f"{source} cannot be downloaded ({reason[:200]}).", "reward_model.source") from None


def _code_of(path: Path) -> str | None:
    """Return the field that names code; a file that cannot be read may have one, so it counts as if it had."""
    try:
        return named_code(read_json(path))
    except (OSError, UnreadableFileError):
        return "perhaps a field"
