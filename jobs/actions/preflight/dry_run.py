"""The plan of a run before it starts: settings, command, memory of each GPU and disk."""

import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from exgrpo.jobs.actions.preflight.data_preview import preview_data
from exgrpo.jobs.actions.preflight.looks import Look, first_look
from exgrpo.jobs.actions.preflight.machine_fit import UNNAMED_RUN
from exgrpo.jobs.actions.preflight.memory_estimate import MemoryEstimate
from exgrpo.jobs.actions.preflight.resolution import Preflight, RunRefusedError, complete, resolve
from exgrpo.jobs.machine.engine_environments import EngineEnvironmentError, engine_python
from exgrpo.jobs.machine.hardware import GB, GIB, list_gpus, uses_bfloat16
from exgrpo.jobs.runs.launchers.local import WORKER_MODULE
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.rewards import TASKS
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.pretrained.model_shapes import model_file
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_json
from exgrpo_core.errors import Mistake, UserError, first_line

ELSEWHERE = (
    "`--script shell`, `--script slurm` or `--script ray` in the place of `--dry-run` prints what starts the run on "
    "machines that have what this one lacks."
)

_COUNTER = "exgrpo.jobs.training.trained_tokens"
_COUNTER_SECONDS = 120.0
_NUM_SHOWN = 5
_SAMPLING_SETTINGS = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "min_p": None, "typical_p": 1.0}
"""Settings of generation_config.json that `do_sample` turns on, with the values that change nothing."""


def plan_run(spec: TrainSpec, runs_root: Path) -> Preflight:
    """Return what is known of a run, with its command, its first prompt and every notice, without writing anything.

    Refusals of verl that concern this machine only, such as a missing file or too few GPUs, are among the notices.

    Raises:
        RunRefusedError: It cannot run on any machine, or not on this one with the embedded engine.
    """
    plan = complete(resolve(spec, runs_root), runs_root)
    plan.raise_refusals(ignores_local=spec.engine == "verl")
    spec, shape = plan.spec, plan.look.model.shape
    notices = [*(refusal.mistake for refusal in plan.refusals), *plan.notices]
    notices += [plan.disk_shortage] if plan.disk_shortage else []
    if spec.engine == "verl" and plan.refusals:
        notices.append(ELSEWHERE)
    if shape is not None and spec.engine != "verl":
        notices.append(_describe_precision(spec, shape.parameters))
    if shape is None:
        lack = "does not name all sizes" if plan.look.model.has_config else "is not on this machine"
        notices.append(f"{spec.model.source}: its config.json {lack}, so memory is not estimated.")
    notices += [*_generation_notices(spec), *_look_notices(spec)]
    plan.prompt = _first_prompt(spec, notices)
    plan.trained_tokens = {} if plan.prompt is None else _trained_tokens(plan.look, notices)
    plan.command = _command(spec, runs_root.absolute() / UNNAMED_RUN, notices)
    plan.notices = notices
    return plan


def plan_record(plan: Preflight) -> dict[str, Any]:
    """Return the plan as a program gets it; numbers that depend on the model's shape are None where it is not known."""
    spec, needs, shape = plan.spec, plan.needs, plan.look.model.shape
    return {
        "spec": spec.model_dump(mode="json"),
        "settings": plan.settings,
        "config": plan.config,
        "command": plan.command,
        "memory": None if needs.gpu_memory is None else asdict(needs.gpu_memory),
        "num_gpus": needs.num_gpus or 1,
        "trajectory_bytes": needs.recordings,
        "checkpoint_bytes": needs.checkpoints,
        "parameters": None if shape is None else shape.parameters,
        "trained_parameters": None if shape is None else shape.trained_parameters(spec.model),
        "peak_memory": None if spec.engine == "verl" else needs.memory,
        "notices": plan.notices,
        "prompt": plan.prompt,
        "trained_tokens": plan.trained_tokens,
    }


def _describe_precision(spec: TrainSpec, num_parameters: int) -> str:
    if spec.model.device != "cpu" and list_gpus():
        return "the GPU computes in bfloat16, with weights in float32."
    if uses_bfloat16(num_parameters):
        return "this processor has units for bfloat16 and computes in it, with weights in float32."
    return "the model is computed in float32: the processor has no units for bfloat16, or the model is small."


def _generation_notices(spec: TrainSpec) -> list[str]:
    path = model_file(spec.model.source, "generation_config.json", spec.model.revision)
    try:
        settings = {} if path is None else read_json(path)
    except (OSError, UnreadableFileError):
        return []  # the model's loader names what is wrong with it
    unused = [name for name, unset in _SAMPLING_SETTINGS.items() if settings.get(name, unset) not in {unset, None}]
    if not unused or settings.get("do_sample") is True:
        return []
    return [
        f"{spec.model.source}: generation_config.json sets {', '.join(unused)} without `do_sample: true`, so programs "
        "that read it answer greedily; checkpoints keep the file as it is."
    ]


def _look_notices(spec: TrainSpec) -> list[str]:
    look = first_look(spec)
    return [] if look is None else [look.sentence]


@needs(Role.OPERATOR)
def dry_run_text(spec: TrainSpec, runs_root: Path) -> str:
    """Return the text of a dry run, which may take seconds, or why there is none."""
    try:
        return describe_plan(plan_run(spec, runs_root))
    except UserError as error:
        return str(error)


def describe_plan(plan: Preflight) -> str:
    """Return the plan as text for a terminal."""
    record, needs = plan_record(plan), plan.needs
    parts = ["# Specification", yaml.safe_dump(record["spec"], sort_keys=False, allow_unicode=True).rstrip()]
    if plan.settings:
        parts += ["", "# verl's settings", *plan.settings]
    parts += ["", "# Command", shlex.join(plan.command)]
    if plan.prompt is not None:
        parts += ["", "# The first prompt, as the model gets it", plan.prompt]
    if counts := sorted(plan.trained_tokens.values()):
        rows = [f"row {row}: {count:,}" for row, count in list(plan.trained_tokens.items())[:_NUM_SHOWN]]
        spread = f"{counts[0]:,} to {counts[-1]:,}, median {counts[len(counts) // 2]:,}"
        parts += ["", "# Trained tokens of each demonstration", *rows, f"{len(counts):,} rows: {spread}"]
    parts += ["", "# Estimates"]
    if needs.gpu_memory is not None:
        parts += _describe_memory(needs.gpu_memory, record["num_gpus"])
    if (trained := record["trained_parameters"]) is not None:
        share = 100 * trained / record["parameters"]
        parts.append(f"trained parameters     {trained / 1e6:10.2f} million ({share:.3g}% of the model's)")
    if (peak := record["peak_memory"]) is not None:
        parts.append(f"peak memory on a CPU   {peak / GB:10.1f} GB with the longest responses")
    parts.append(f"trajectories on disk   {needs.recordings / GB:10.1f} GB over all steps")
    if needs.checkpoints is not None:
        parts.append(f"checkpoints on disk    {needs.checkpoints / GB:10.1f} GB")
    return "\n".join([*parts, *(f"Note: {notice}" for notice in plan.notices)])


def _first_prompt(spec: TrainSpec, notices: list[str]) -> str | None:
    if spec.data.source not in TASKS and not Path(spec.data.source).is_file():
        return None
    try:
        preview = preview_data(spec, num_shown=1, max_rows=1)
    except DataError as error:
        notices.append(str(error))
        return None
    if preview.notice:
        notices.append(preview.notice)
    return preview.questions[0].prompt


def _trained_tokens(look: Look, notices: list[str]) -> dict[str, int]:
    spec = look.spec
    if spec.sft is None or look.model.tokenizer is None:
        return {}
    command = [sys.executable, "-P", "-m", _COUNTER]
    try:
        done = subprocess.run(
            command, input=spec.model_dump_json(), capture_output=True, text=True, timeout=_COUNTER_SECONDS, check=True
        )
    except subprocess.SubprocessError as error:
        notices.append(f"Trained tokens could not be counted ({first_line(error)}).")
        return {}
    found = parse_json(done.stdout.splitlines()[-1])
    if "error" in found:
        raise RunRefusedError([Mistake(found["error"])])
    return dict(found["rows"])


def _command(spec: TrainSpec, run_path: Path, notices: list[str]) -> list[str]:
    if spec.engine == "verl" and spec.verl.ray.address is not None:
        notices.append(f"The command runs as a job of the Ray cluster at {spec.verl.ray.address}.")
        python = "python"
    else:
        try:
            python = engine_python(spec.engine)
        except EngineEnvironmentError:
            python = "python"
    return [python, "-P", "-m", WORKER_MODULE, str(run_path), "1"]


def _describe_memory(memory: MemoryEstimate, num_gpus: int) -> list[str]:
    gpus = "one GPU" if num_gpus == 1 else f"each of {num_gpus} GPUs"
    head = f"Memory of {gpus}, {memory.parameters / 1e9:.2f} billion parameters:"
    lines = [f"  {name:<22} {size / GIB:8.1f} GiB  {note}".rstrip() for name, size, note in memory.parts]
    return [head, *lines, *([f"  Too little: {memory.shortage}."] if memory.shortage else [])]
