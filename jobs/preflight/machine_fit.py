"""Whether this machine has the memory, the disk and the packages that a training run needs."""

import shutil
from pathlib import Path

import psutil

from jobs.machine.disk import GB
from jobs.machine.engine_environments import EngineEnvironmentError, engine_python, has_vllm
from jobs.machine.gpu_needs import needs_of
from jobs.machine.gpus import list_gpus
from jobs.preflight.embedded_memory import training_state_bytes
from jobs.preflight.model_shapes import model_shape
from jobs.preflight.resource_estimate import estimate_resources
from jobs.preflight.verl_memory import estimate_memory
from jobs.specs.any_job import loop_name
from jobs.specs.train import SpecError, TrainSpec

_OFFLOAD = "offload=true"
"""An override that moves training state out of a GPU's memory."""


def check_disk(spec: TrainSpec, runs_root: Path) -> None:
    """Refuse a run whose records and checkpoints need more space than the disk of the runs root has.

    Raises:
        SpecError: They do.
    """
    needs = estimate_resources(spec)
    wanted = needs.recordings + (needs.checkpoints or 0)
    folder = next(path for path in (runs_root.absolute(), *runs_root.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise SpecError(
            f"num_checkpoints_kept, recording.token_data: the run needs about {_gb(wanted)} of disk and {folder} has "
            f"{_gb(free)} free; lower them, free some space, or use another disk: `--runs-root FOLDER`."
        )


def check_embedded_device(spec: TrainSpec) -> None:
    """Refuse a run that asks the embedded engine for a GPU where there is none.

    Raises:
        SpecError: It does.
    """
    if spec.model.device == "cuda" and not list_gpus():
        raise SpecError(
            "model.device: this machine has no NVIDIA GPU; set it to auto or cpu, or run `exgrpo doctor` if it has one."
        )


def check_memory(spec: TrainSpec) -> None:
    """Refuse a run whose weights, gradients and optimizer alone need more memory than this machine or its GPUs have.

    Raises:
        SpecError: They do.
    """
    shape = model_shape(spec.model.source, spec.model.revision)
    if shape is None or any(_OFFLOAD in word.lower() for word in spec.verl.overrides):
        return
    gpus = [] if spec.model.device == "cpu" else list_gpus()
    if spec.engine == "verl" and spec.model.device != "cpu" and not gpus:
        return  # another check says that there are none
    available = min(gpu.total_bytes for gpu in gpus) if gpus else psutil.virtual_memory().total
    if spec.engine == "embedded":
        wanted = training_state_bytes(shape, spec)
        advice = "choose a smaller model, set model.lora, or use the verl engine on more GPUs"
    else:
        state = estimate_memory(shape, spec)
        wanted = state.weights + state.gradients + state.optimizer
        advice = "raise verl.gpus_per_node or verl.num_nodes, or choose a smaller model"
        if not gpus:
            wanted *= spec.verl.gpus_per_node
    if wanted > available:
        memory = f"each GPU has {_gb(available)}" if gpus else f"this machine has {_gb(available)}"
        raise SpecError(
            f"model.source: weights, gradients and optimizer of {spec.model.source} need {_gb(wanted)} of memory and "
            f"{memory}; {advice}."
        )


def check_rollout(spec: TrainSpec) -> None:
    """Refuse a run that generates with vLLM where verl's environment has none.

    Raises:
        SpecError: It does.
    """
    if spec.sft is not None or spec.verl.rollout != "vllm":
        return
    try:
        python = engine_python(loop_name(spec))
        is_there = has_vllm(python)
    except EngineEnvironmentError:
        return  # another check says so
    if not is_there:
        raise SpecError(
            f"verl.rollout: vLLM is not installed in the environment of {python}; make it again with "
            "`make verl-env GPU=1`, or set verl.rollout to hf for a small model."
        )


def check_gpu_needs(spec: TrainSpec) -> None:
    """Refuse a run on this machine's GPUs that lacks a compiler, Python's headers or the attention kernel.

    Raises:
        SpecError: It does; the sentence says how to get them.
    """
    if spec.model.device == "cpu" or not list_gpus():
        return  # another check says that there are no GPUs
    try:
        needs = needs_of(engine_python(loop_name(spec)))
    except EngineEnvironmentError:
        return  # another check says so
    if problems := needs.problems(spec.verl.attention):
        raise SpecError(f"{'; '.join(problems)}.")


def _gb(size: float) -> str:
    return f"{size / GB:,.1f} GB"
