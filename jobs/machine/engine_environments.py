"""Which interpreter runs which engine: the verl engine has a separate environment."""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import exgrpo
from exgrpo_core.errors import UserError
from exgrpo_core.verl_plugin.settings import NO_STATISTICS

PROJECT_ROOT = Path(exgrpo.__file__).resolve().parents[1]
VERL_PYTHON_VARIABLE = "EXGRPO_VERL_PYTHON"
VERL_ENVIRONMENT = ".venv-verl"
VLLM_ENVIRONMENT = ".venv-verl-vllm"
"""The environment of `make test-verl-vllm`: verl with vLLM's build for the CPU."""
VLLM_VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", NO_STATISTICS: "1"}
"""What vLLM's build for the CPU reads before it is imported: GiB of the cache, threads that may move, no statistics."""
VLLM_LOOP = "eval vllm"
"""The loop of an evaluation that vLLM generates for."""
JUDGE_LOOP = "judge"
"""The loop that needs none of the packages of training."""
VERL_LOOP = "verl"
"""The loop that only verl's environment can run, as `exgrpo.jobs.specs.any_job.loop_name` names it."""
VERL_PACKAGES = ("torch", "verl", "ray", "vllm", "transformers", "kernels")
"""Packages whose versions decide whether the verl engine runs; vllm and kernels are for GPUs only."""
GPU_PINS = "constraints-verl-gpu.txt"
_PROBE_SECONDS = 60.0
_PROBE = """
import importlib.metadata, json, sys
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        versions[name] = None
print(json.dumps(versions))
"""
_DISTRIBUTION = "exgrpo-workbench"
_EXTRA = re.compile(r"""^([\w.-]+).*;\s*extra == ["']([\w-]+)["']""")
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;#]+)")


class EngineEnvironmentError(UserError):
    """An engine's environment is missing or broken; one sentence with the command that makes it."""


def engine_python(loop: str) -> str:
    """Return the interpreter that runs a job's loop: this one, or verl's or vLLM's for theirs.

    Raises:
        EngineEnvironmentError: There is no environment for verl or vLLM, or this one lacks what trains and scores.
    """
    if loop == VLLM_LOOP:
        return _vllm_python()
    if loop != VERL_LOOP:
        if loop != JUDGE_LOOP and importlib.util.find_spec("torch") is None:
            raise EngineEnvironmentError(describe_missing_package("torch"))
        return sys.executable
    named = os.environ.get(VERL_PYTHON_VARIABLE)
    python = Path(named).absolute() if named else PROJECT_ROOT / VERL_ENVIRONMENT / "bin" / "python"
    if not os.access(python, os.X_OK) or python.is_dir():
        raise EngineEnvironmentError(
            f"{python}: no interpreter for the verl engine; run `make verl-env`, or name one in {VERL_PYTHON_VARIABLE}."
        )
    return str(python)


def describe_missing_package(module: str) -> str:
    """Return one sentence on a module that is not installed, with the command where it belongs to an extra of ours."""
    requirements = map(_EXTRA.match, importlib.metadata.requires(_DISTRIBUTION) or ())
    extras = {match[1].replace("-", "_").lower(): match[2] for match in reversed([*filter(None, requirements)])}
    package = module.partition(".")[0]
    if package not in extras:
        return f"{package} is not installed; install {_DISTRIBUTION} again."
    in_clone = ", or `make install` in a clone" if extras[package] == "train" else ""
    return f"This needs {package}, which is not installed: pip install '{_DISTRIBUTION}[{extras[package]}]'{in_clone}."


def _vllm_python() -> str:
    """Return the first of verl's environment, the one of vLLM on the CPU, and this one that has vLLM."""
    named = os.environ.get(VERL_PYTHON_VARIABLE)
    environments = (PROJECT_ROOT / name / "bin" / "python" for name in (VERL_ENVIRONMENT, VLLM_ENVIRONMENT))
    for python in (*([Path(named).absolute()] if named else []), *environments, Path(sys.executable)):
        if os.access(python, os.X_OK) and not python.is_dir() and has_vllm(str(python)):
            return str(python)
    raise EngineEnvironmentError(
        "generator: no environment has vLLM; make one with `make verl-env GPU=1` on NVIDIA GPUs or `make vllm-env` on "
        "the CPU, or choose embedded or server."
    )


def has_vllm(python: str) -> bool:
    """Return whether an interpreter's environment has vLLM; the answer is kept until the environment is made again.

    Raises:
        EngineEnvironmentError: The interpreter does not run.
    """
    return _kept_versions(python, Path(python).stat().st_mtime_ns).get("vllm") is not None


@lru_cache(maxsize=16)
def _kept_versions(python: str, _made_at: int) -> dict[str, str | None]:
    return installed_versions(python)


def installed_versions(python: str, packages: tuple[str, ...] = VERL_PACKAGES) -> dict[str, str | None]:
    """Return the versions of packages in another interpreter's environment, None where one is missing.

    Raises:
        EngineEnvironmentError: The interpreter does not run.
    """
    try:
        probe = subprocess.run(
            [python, "-I", "-c", _PROBE, *packages], capture_output=True, timeout=_PROBE_SECONDS, check=True
        )
        versions: dict[str, str | None] = json.loads(probe.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineEnvironmentError(
            f"{python}: does not run ({type(error).__name__}); run `make verl-env` again."
        ) from None
    return versions


@dataclass(frozen=True, slots=True)
class Pins:
    """The versions in one constraints file."""

    name: str
    versions: Mapping[str, str]

    def differences(self, installed: Mapping[str, str | None]) -> list[str]:
        """Return what is missing or of another version, a phrase each; builds of one version (`+cpu`) are equal."""
        differences = []
        for package, version in installed.items():
            wanted = self.versions.get(package)
            if version is None and wanted is not None:
                differences.append(f"{package} is missing")
            elif version is not None and wanted is not None and _release(version) != _release(wanted):
                differences.append(f"{package} is {version}, not {wanted}")
        return differences


def verl_pins(folder: Path = PROJECT_ROOT / "requirements") -> list[Pins]:
    """Return the pins of every `constraints-verl-*.txt`, for CPUs and for GPUs."""
    return [Pins(path.name, _read_pins(path)) for path in sorted(folder.glob("constraints-verl-*.txt"))]


def _read_pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = [match for line in lines if (match := _PIN.match(line.strip()))]
    return {match[1].lower().replace("_", "-"): match[2] for match in matches}


def _release(version: str) -> str:
    return version.partition("+")[0]
