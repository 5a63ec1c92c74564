"""A training run as a script to take along to machines with GPUs: for a shell, for Slurm, or as a job of Ray."""

import json
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo.jobs.specs.verl import ray_cpus

HEAD_ADDRESS = "http://HEAD:8265"
"""Stands for the address of a cluster that the specification does not name."""
_SCRIPTS = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("scripts")), autoescape=False, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
)  # fmt: skip
SECONDS_TO_STOP = 900
"""Before Slurm's time limit, for a step, a checkpoint and the end of all processes."""


class ScriptKind(StrEnum):
    """What starts the run there."""

    SHELL = "shell"
    SLURM = "slurm"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class LaunchScript:
    """A text to copy, and the name to keep it under."""

    file_name: str
    text: str


@needs(Role.OPERATOR)
def write_script(spec: TrainSpec, runs_root: Path, kind: ScriptKind) -> LaunchScript:
    """Return what starts a run elsewhere; scripts hold the whole specification, with files by their paths here.

    What this machine lacks is no reason against it.

    Raises:
        RunRefusedError: It cannot run on any machine.
        SpecError: It starts from a checkpoint of this runs root, or it is no job for Ray.
    """
    preflight = resolve(spec, runs_root)
    preflight.raise_refusals(ignores_local=True)
    if preflight.start is not None or spec.model.source.startswith(f"{spec.waits_for}@"):
        raise SpecError(
            f"{spec.model.source} is of this runs root; write it with `exgrpo export "
            f"{spec.model.source} FOLDER` and give FOLDER to run elsewhere.",
            "model.source",
        )
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.name).strip("-") or "run"
    values = _values(preflight.spec, slug)
    shell = LaunchScript(f"{slug}.sh", _SCRIPTS.get_template("shell.sh.jinja").render(values))
    if kind is ScriptKind.SHELL:
        return shell
    if kind is ScriptKind.SLURM:
        return LaunchScript(f"{slug}.sbatch", _SCRIPTS.get_template("slurm.sbatch.jinja").render(values))
    if spec.engine != "verl":
        raise SpecError("expected verl for a job on a Ray cluster, got embedded; take another script.", "engine")
    return LaunchScript(f"{slug}-ray.sh", _ray_line(shell.file_name, spec.verl.ray.address))


def _values(spec: TrainSpec, slug: str) -> dict[str, object]:
    ray, num_nodes = spec.verl.ray, spec.verl.num_nodes if spec.engine == "verl" else 1
    verl = spec.verl.model_copy(update={"ray": ray.model_copy(update={"address": None})})
    content = spec.model_copy(update={"verl": verl, "waits_for": None}).model_dump(mode="json")
    # Every machine gets as many, those of a reward model included.
    gpus_per_node = spec.gpus_of_a_machine if spec.engine == "verl" else 1
    machines = "one machine" if num_nodes == 1 else f"each of {num_nodes} machines"
    return {
        "slug": slug,
        "size": f"{gpus_per_node} GPU{'' if gpus_per_node == 1 else 's'} on {machines}",
        "specification": yaml.safe_dump(content, sort_keys=False, allow_unicode=True),
        "folder": shlex.quote(str(ray.working_dir or PROJECT_ROOT)),
        "num_nodes": num_nodes,
        "has_gpus": spec.model.device != "cpu",
        "gpus_per_node": gpus_per_node,
        "cpus_per_node": ray_cpus(gpus_per_node),
        "seconds_to_stop": SECONDS_TO_STOP,
    }


def _ray_line(script: str, address: str | None) -> str:
    """Return the command that submits the shell script from its folder, and lets `ray job stop` wait for a step."""
    environment = json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(SECONDS_TO_STOP)}})
    words = ["ray", "job", "submit", "--address", address or HEAD_ADDRESS, "--runtime-env-json", environment]
    return f"{shlex.join([*words, '--working-dir', '.', '--', 'bash', script])}\n"
