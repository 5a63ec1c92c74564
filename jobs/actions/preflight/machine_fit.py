"""Whether this machine has the memory, disk, GPUs and packages that a training run needs, and verl its settings."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from exgrpo.jobs.actions.preflight.looks import Look
from exgrpo.jobs.actions.preflight.memory_estimate import (
    ResourceEstimate,
    estimate_memory,
    known_gpu_bytes,
    training_state_bytes,
)
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT, EngineEnvironmentError, engine_python, has_vllm
from exgrpo.jobs.machine.gpu_needs import needs_of
from exgrpo.jobs.machine.hardware import GB
from exgrpo.jobs.specs.any_job import local_gpus
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import (
    ENGINE_OVERRIDES,
    attention_name,
    check_overrides,
    verl_overrides,
)
from exgrpo.jobs.training.pretrained.model_shapes import check_split
from exgrpo_core.verl_plugin.settings import EXTERNAL_MODULES_VARIABLE

_OFFLOAD = "offload=true"
"""An override that moves training state out of a GPU's memory."""
"""Name of verl's configuration for reinforcement learning."""
CHECK_MODULE = "exgrpo_core.verl_plugin.config_check"
UNNAMED_RUN = Path("RUN")
"""Placeholder for the run directory of a run that does not exist yet."""
_CHECK_SECONDS = 120.0
_SEQUENCE_PARALLEL = re.compile(r"ulysses_sequence_parallel_size['\"]?\s*[=:]\s*(\d+)")


def find_disk_shortage(needs: ResourceEstimate, runs_root: Path) -> str:
    """Return that the run's records and checkpoints need more space than the runs root's disk has, or ""."""
    wanted = needs.recordings + (needs.checkpoints or 0)
    folder = next(path for path in (runs_root.absolute(), *runs_root.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    if wanted <= free:
        return ""
    return (
        f"num_checkpoints_kept, recording.token_data: the run needs about {_gb(wanted)} of disk and {folder} has "
        f"{_gb(free)} free; lower them, free some space, or use another disk: `--runs-root FOLDER`."
    )


def check_engine(look: Look) -> list[str]:
    """Refuse a run whose engine is not installed here, or lacks what it needs to run on this machine's GPUs.

    Return that verl's settings are not checked, of a run elsewhere without verl's environment here.

    Raises:
        EngineEnvironmentError: There is no environment for the engine, or it is broken.
        SpecError: It lacks vLLM, a compiler, Python's headers or the attention kernel; says how to get them.
    """
    spec = look.spec
    try:
        python = engine_python(spec.engine)
    except EngineEnvironmentError as error:
        return _unchecked(spec, error)
    if not _starts_ray(spec) or spec.model.device == "cpu":
        return []
    if not has_vllm(python):
        raise SpecError(
            f"vLLM is not installed in the environment of {python}, so none can generate; make it "
            "again with `make verl-env GPU=1`.",
            "verl.gpus_per_node",
        )
    if look.gpus and (problems := needs_of(python).problems(spec.verl.attention)):
        raise SpecError(f"{'; '.join(problems)}.")
    return []


def _starts_ray(spec: TrainSpec) -> bool:
    """Whether verl runs on this machine."""
    return spec.engine == "verl" and not spec.verl.joins_cluster


def _unchecked(spec: TrainSpec, error: EngineEnvironmentError) -> list[str]:
    if spec.engine != "verl" or spec.verl.ray.address is None:
        raise error
    return [f"The settings were not checked against verl's configuration: {error}"]


def check_memory(look: Look) -> list[str]:
    """Refuse a run that needs more memory than its GPUs have where that is known, or on a CPU than this machine has.

    Of the verl engine the peaks of updates and of generation are compared, of the embedded one the training state.
    Return a notice where memory may be short, by an upper bound.

    Raises:
        SpecError: It does.
    """
    spec, shape = look.spec, look.model.shape
    if shape is None or any(_OFFLOAD in word.lower() for word in spec.verl.overrides):
        return []
    if spec.engine == "verl":
        if known_gpu_bytes(spec) is None:
            return []
        needs = estimate_memory(shape, spec)
        if needs.sure_shortage:
            advice = "if a GPU has another size, set verl.gpu_gib"
            raise SpecError(f"{spec.model.source}: {needs.sure_shortage}; {advice}.", "model.source")
        return [f"{spec.model.source}: memory may be short: {needs.shortage}."] if needs.shortage else []
    gpus = [] if spec.model.device == "cpu" else look.gpus
    available = min(gpu.total_bytes for gpu in gpus) if gpus else psutil.virtual_memory().total
    wanted = training_state_bytes(shape, spec)
    if wanted > available:
        memory = f"each GPU has {_gb(available)}" if gpus else f"this machine has {_gb(available)}"
        raise SpecError(
            f"weights, gradients and optimizer of {spec.model.source} need {_gb(wanted)} of memory and {memory}; "
            "choose a smaller model, set model.lora, or use the verl engine on more GPUs.",
            "model.source",
        )
    return []


def _gb(size: float) -> str:
    return f"{size / GB:,.1f} GB"


def check_run_overrides(spec: TrainSpec) -> None:
    """Refuse overrides of settings that fields of the specification decide, or that have no effect.

    Raises:
        SpecError: There is such an override.
    """
    plain = spec.model_copy(update={"verl": spec.verl.model_copy(update={"overrides": ()})})
    decided = run_overrides(plain, UNNAMED_RUN)
    check_overrides(spec.verl.overrides, decided)


def check_parallelism(look: Look) -> None:
    """Refuse parts of the model, or of sequences, that vLLM and verl do not make, or that verl makes wrongly.

    Raises:
        SpecError: There are such parts; the model's sizes are asked where they are known.
    """
    spec, shape = look.spec, look.model.shape
    if spec.engine != "verl":
        return
    found = [int(number) for word in spec.verl.overrides for number in _SEQUENCE_PARALLEL.findall(word)]
    sequence_parallel, num_gpus = max(found, default=1), spec.verl.num_gpus
    if min(found, default=1) < 1:
        raise SpecError("ulysses_sequence_parallel_size: expected at least 1, got 0.", "verl.overrides")
    if sequence_parallel > 1 and attention_name(spec) == "sdpa":
        raise SpecError(
            "ulysses_sequence_parallel_size: expected 1 with PyTorch's attention, through which verl would attend to "
            "only a part of each sequence; set verl.attention to flash, on GPUs.",
            "verl.overrides",
        )
    if num_gpus % sequence_parallel or (shape is not None and not shape.shares_heads(sequence_parallel)):
        raise SpecError(
            f"ulysses_sequence_parallel_size: expected a divisor of the {num_gpus} GPUs and of the model's attention "
            f"heads, got {sequence_parallel}.",
            "verl.overrides",
        )
    check_split(spec.model.source, shape, spec.verl.tensor_parallel, "verl.tensor_parallel")


def run_overrides(spec: TrainSpec, run_path: Path) -> list[str]:
    """Return the overrides of verl's settings that a run is started with."""
    return [*ENGINE_OVERRIDES, *verl_overrides(spec, run_path)]


def check_machine(look: Look) -> None:
    """Refuse a run on a machine that is too small for it; one that joins a Ray cluster needs none.

    Raises:
        SpecError: It asks for more machines than this one, or for more GPUs than this one has.
    """
    spec = look.spec
    if spec.engine == "embedded" and spec.model.device == "cuda" and not look.gpus:
        raise SpecError(
            "this machine has no NVIDIA GPU; set it to auto or cpu, or run `exgrpo doctor` if it has one.",
            "model.device",
        )
    if not _starts_ray(spec):
        return
    if spec.verl.num_nodes > 1:
        raise SpecError("expected 1 without verl.ray.address, since the run's Ray has one machine.", "verl.num_nodes")
    if spec.model.device == "cpu":
        if EXTERNAL_MODULES_VARIABLE not in os.environ:
            raise SpecError("verl trains on GPUs; set it to auto, or engine to embedded.", "model.device")
        return
    num_wanted, num_gpus = local_gpus(spec), len(look.gpus)
    if num_gpus < num_wanted:
        fewer = "lower it, of a run that began by `exgrpo branch`, " if num_gpus else ""
        raise SpecError(
            f"the run needs {num_wanted} NVIDIA GPU{'' if num_wanted == 1 else 's'} and may use {num_gpus} of this "
            f"machine; {fewer}name a cluster in verl.ray.address, print a script for another machine with `--script`, "
            "or set engine to embedded for a small model.",
            "verl.gpus_per_node",
        )


def compose_config(spec: TrainSpec, settings: list[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Return verl's whole configuration with a run's settings, None where only a machine elsewhere can compose it.

    With it come notices on what was not checked, and on verl's version.

    Raises:
        SpecError: A setting is unknown.
        EngineEnvironmentError: There is no environment for verl, or it is broken.
    """
    try:
        answer = _ask_verl(engine_python("verl"), settings)
    except EngineEnvironmentError as error:
        return None, _unchecked(spec, error)
    if answer["problem"]:
        raise SpecError(answer["problem"])
    return answer["config"], [answer["notice"]] if answer["notice"] else []


def _ask_verl(python: str, settings: list[str]) -> dict[str, Any]:
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    try:
        program = subprocess.run(
            [python, "-P", "-m", CHECK_MODULE],
            input=json.dumps(settings).encode(),
            capture_output=True,
            timeout=_CHECK_SECONDS,
            env=environment,
            check=True,
        )
        answer: dict[str, Any] = json.loads(program.stdout)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise EngineEnvironmentError(
            f"{python}: cannot check verl's configuration ({last_line}); run `make verl-env` again."
        ) from None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EngineEnvironmentError(
            f"{python}: does not run ({type(error).__name__}); run `make verl-env` again."
        ) from None
    return answer
