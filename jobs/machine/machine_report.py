"""What this machine can run, found by another process, so that the caller loads no PyTorch."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT

PACKAGES = (
    "exgrpo-workbench", "streamlit", "plotly", "pandas", "numpy", "torch", "transformers", "tokenizers", "datasets",
    "pyarrow", "pydantic", "SQLAlchemy", "psycopg", "ray", "verl", "vllm",
)  # fmt: skip
_TIMEOUT_SECONDS = 120.0


class CheckResult(StrEnum):
    """`warning` limits what can be done; `failure` stops the embedded engine or the workbench."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `advice` is empty if there is nothing to do."""

    name: str
    result: CheckResult
    detail: str
    advice: str = ""


def examine_machine(runs_root: Path, database_url: str | None) -> list[Check]:
    """Return the findings of `exgrpo doctor --json`, or one that says why it cannot be run."""
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    if database_url is not None:
        environment[DATABASE_URL_VARIABLE] = database_url
    command = [sys.executable, "-P", "-m", "exgrpo.jobs.cli", "doctor", "--json"]
    try:
        program = subprocess.run(
            [*command, "--runs-root", str(runs_root)],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            env=environment,
            check=False,
        )
        return [Check(**finding) for finding in json.loads(program.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        return [
            Check(
                "exgrpo doctor", CheckResult.FAILURE, f"cannot be run ({type(error).__name__})", "Run it in a terminal."
            )
        ]


def package_versions() -> dict[str, str | None]:
    """Return the versions of the main packages in this environment, None where one is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
