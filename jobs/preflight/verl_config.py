"""Checks a run of the verl engine before it is queued: against verl's configuration and the machine."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from jobs.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, check_overrides, verl_overrides
from jobs.engines.verl_ray.sft_overrides import SFT_CONFIG, check_sft_overrides, sft_run_overrides
from jobs.machine.engine_environments import PROJECT_ROOT, EngineEnvironmentError, engine_python
from jobs.specs.train import SpecError, TrainSpec
from jobs.specs.verl import CLUSTER_VARIABLE

RL_CONFIG = "ppo_trainer"
"""Name of verl's configuration for reinforcement learning."""
CHECK_MODULE = "jobs.engines.verl_ray.config_check"
UNNAMED_RUN = Path("RUN")
"""Placeholder for the run directory of a run that does not exist yet."""
GPU_FOLDER = Path("/dev")
_CHECK_SECONDS = 120.0


def check_run_overrides(spec: TrainSpec) -> None:
    """Refuse overrides of settings that fields of the specification decide.

    Raises:
        SpecError: There is such an override.
    """
    if spec.sft is None:
        check_overrides(spec)
    else:
        check_sft_overrides(spec)


def run_overrides(spec: TrainSpec, run_path: Path) -> list[str]:
    """Return the overrides of verl's settings that a run is started with."""
    if spec.sft is not None:
        return sft_run_overrides(spec, run_path)
    return [*ENGINE_OVERRIDES, *verl_overrides(spec, run_path)]


def config_name(spec: TrainSpec) -> str:
    """Return the name of verl's configuration that a run's settings belong to."""
    return RL_CONFIG if spec.sft is None else SFT_CONFIG


def joins_cluster(spec: TrainSpec) -> bool:
    """Return whether a run of the verl engine uses a Ray cluster that is there, and no GPUs of this machine."""
    return spec.verl.ray.address is not None or CLUSTER_VARIABLE in os.environ


def check_machine(spec: TrainSpec) -> None:
    """Refuse a run without a Ray cluster on a machine that is too small for it.

    Raises:
        SpecError: It asks for more machines than this one, or for more GPUs than this one has.
    """
    if joins_cluster(spec):
        return
    if spec.verl.num_nodes > 1:
        raise SpecError("verl.num_nodes: expected 1 without verl.ray.address, since the run's Ray has one machine.")
    if spec.model.device == "cpu":
        return
    num_wanted = spec.verl.gpus_per_node + (spec.reward_model.num_gpus if spec.reward_model else 0)
    num_gpus = sum(1 for _ in GPU_FOLDER.glob("nvidia[0-9]*"))
    if num_gpus < num_wanted:
        raise SpecError(
            f"verl.gpus_per_node: the run needs {num_wanted} NVIDIA GPUs and this machine has {num_gpus}; lower it, "
            "name a cluster in verl.ray.address, or set model.device to cpu and verl.rollout to hf for a small model."
        )


def checked_config(overrides: list[str], name: str = RL_CONFIG) -> dict[str, Any]:
    """Return verl's whole configuration of a name with `overrides`, as verl's environment composes it.

    Raises:
        SpecError: A setting is unknown or of the wrong type; one sentence each, with the nearest name.
        EngineEnvironmentError: There is no environment for verl, or it is broken.
    """
    python = engine_python("verl")
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    try:
        program = subprocess.run(
            [python, "-P", "-m", CHECK_MODULE, name],
            input=json.dumps(overrides).encode(),
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
    if answer["problems"]:
        raise SpecError(" ".join(answer["problems"]))
    config: dict[str, Any] = answer["config"]
    return config
