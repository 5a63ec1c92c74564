"""Starts a worker on this machine: in a new session, with its output in a file, never a pipe."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT, EngineEnvironmentError, engine_python
from exgrpo.jobs.machine.hardware import GPUS_VARIABLE, VISIBLE_VARIABLE
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.processes import ATTEMPT_VARIABLE, ProcessIdentity, has_pid, identify
from exgrpo.jobs.specs.any_job import loop_name
from exgrpo.jobs.specs.train import SpecError
from exgrpo_core.errors import FieldsNamedError, UserError
from exgrpo_core.methods.loading import CODE_FOLDER_VARIABLE

WORKER_MODULE = "exgrpo.jobs.execution.worker"
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Detached processes that this one started, by pid: they outlive the launcher that started them."""


TOKEN_VARIABLE = "EXGRPO_TOKEN"
"""Environment variable with the token of the pages' link."""
ON_END_VARIABLE = "EXGRPO_ON_END"
"""Environment variable with the command that is started when a run ends."""
WITHHELD_VARIABLES = frozenset({"EXGRPO_DATABASE_URL", "PGPASSWORD", "PGPASSFILE", TOKEN_VARIABLE, ON_END_VARIABLE})
"""Secrets of the workbench in the environment: a worker knows no database, opens no page and sends no message."""


class LaunchError(FieldsNamedError, UserError):
    """A worker that could not be started; one sentence says why."""


class LocalLauncher:
    """Starts workers, which continue when their starter ends.

    Without `python`, each starts with the interpreter of its engine's environment.
    """

    def __init__(self, worker_module: str | None = None, python: str | None = None) -> None:
        self.worker_module = worker_module or WORKER_MODULE
        self._python = python

    def start(self, run: RunDirectory, attempt: int, gpus: Sequence[str] = ()) -> ProcessIdentity:
        """Start the worker of one attempt and return its identity; its output goes to the run's log.

        It sees no other GPUs than `gpus`, without any those of this process.

        Raises:
            LaunchError: There is no interpreter or it cannot be started, or the worker was gone at once.
        """
        python = self._python or _python_of(run)
        command = [python, "-P", "-m", self.worker_module, str(run.path.resolve()), str(attempt)]
        # SPT_NOENV: setproctitle (of Ray, vLLM) would else overwrite the environment by which processes are found.
        variables = dict.fromkeys(WITHHELD_VARIABLES, "")
        variables |= {ATTEMPT_VARIABLE: str(run.attempt_path(attempt).resolve()), "SPT_NOENV": "1"}
        variables[GPUS_VARIABLE] = ",".join(gpus)
        if gpus:
            # Indices are the driver's, by the bus; CUDA's are by speed where it is not told.
            variables |= {VISIBLE_VARIABLE: variables[GPUS_VARIABLE], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        with run.log_path.open("ab") as log:
            child = start_detached(command, log.fileno(), run.path, variables)
        identity = identify(child.pid)
        if identity is None:
            raise LaunchError(f"The worker ended at once with exit code {child.poll()}; see {run.log_path.name}.")
        return identity

    def exit_code(self, worker: ProcessIdentity) -> int | None:
        """Return how a worker of this launcher ended, negative for a signal; None if it runs or another started it."""
        child = _CHILDREN.get(worker.pid)
        return None if child is None else child.poll()

    def awaits_exit(self, worker: ProcessIdentity) -> bool:
        """Whether a worker of this launcher has no exit code yet.

        A killed process releases its memory and its lock before the kernel has its exit code.
        """
        child = _CHILDREN.get(worker.pid)
        return child is not None and child.poll() is None and has_pid(worker)

    def reap(self) -> None:
        """Collect the exit codes of workers that ended, so that none stays a zombie."""
        for child in _CHILDREN.values():
            child.poll()


def _python_of(run: RunDirectory) -> str:
    try:
        return engine_python(loop_name(run.job_spec()))
    except SpecError:
        return sys.executable  # the worker reports the error in its specification
    except EngineEnvironmentError as error:
        raise LaunchError(str(error)) from None


def start_detached(
    command: list[str], output: int, folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session, in the project's environment and with `folder` as working directory.

    Raises:
        LaunchError: The program cannot be executed.
    """
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=project_environment(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        raise LaunchError(f"{command[0]}: cannot be started ({error.strerror}); check the environment.") from None
    _CHILDREN[child.pid] = child
    return child


def project_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `variables`, for a program that imports this project after your own.

    Your own modules are found from any folder, as they are from the current one. A PYTHONPATH in `variables` is final.
    """
    environment = dict(os.environ) | dict(variables)
    with contextlib.suppress(FileNotFoundError):  # the current folder may be gone
        environment.setdefault(CODE_FOLDER_VARIABLE, str(Path.cwd()))
    own = map(os.path.abspath, filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    paths = [*own, str(PROJECT_ROOT)]
    path = os.pathsep.join(dict.fromkeys(paths))
    # A log is read later, where each redrawn progress bar of a library would be text.
    return environment | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "TQDM_DISABLE": "1"} | dict(variables)
