"""Checks a run of the verl engine before anything starts: the model's context, and verl's own configuration."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from jobs.engine_environments import PROJECT_ROOT, EngineEnvironmentError, engine_python
from jobs.engines.verl_ray.overrides import check_own_overrides, engine_words, verl_overrides
from jobs.model_shapes import check_context
from jobs.specs import SpecError, TrainSpec

CHECK_MODULE = "jobs.engines.verl_ray.config_check"
UNNAMED_RUN = Path("RUN")
"""Stands for the run directory of a run that is not made yet."""
_CHECK_SECONDS = 120.0


def check_run(spec: TrainSpec) -> None:
    """Refuse a run of the verl engine that cannot work.

    A job for an existing Ray cluster needs no environment for verl on this machine; its settings are then checked
    there.

    Raises:
        SpecError: The model's context is too short, or verl has no such setting or none of this type.
        EngineEnvironmentError: The run is to start on this machine, which has no environment for verl.
    """
    check_context(spec)
    check_own_overrides(spec)
    try:
        checked_config([*engine_words(spec), *verl_overrides(spec, UNNAMED_RUN)])
    except EngineEnvironmentError:
        if spec.verl.ray.address is None:
            raise


def checked_config(words: list[str]) -> dict[str, Any]:
    """Return verl's whole configuration with `words` in it, as verl's own environment composes it.

    Raises:
        SpecError: A setting is unknown or of the wrong type; one sentence each, with the nearest name.
        EngineEnvironmentError: There is no environment for verl, or it is broken.
    """
    python = engine_python("verl")
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    try:
        program = subprocess.run(
            [python, "-P", "-m", CHECK_MODULE],
            input=json.dumps(words).encode(),
            capture_output=True,
            timeout=_CHECK_SECONDS,
            env=environment,
            check=True,
        )
        found: dict[str, Any] = json.loads(program.stdout)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise EngineEnvironmentError(
            f"{python}: cannot check verl's configuration ({last_line}); make it anew: `make verl-env`."
        ) from None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EngineEnvironmentError(
            f"{python}: does not run ({type(error).__name__}); make it anew: `make verl-env`."
        ) from None
    if found["problems"]:
        raise SpecError(" ".join(found["problems"]))
    config: dict[str, Any] = found["config"]
    return config
