"""Runs a worker as a job on an existing Ray cluster, through Ray's Jobs API."""

import contextlib
import json
import math
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.machine.hardware import GB
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import WORKER_MODULE, LaunchError
from exgrpo.jobs.runs.launchers.ray_jobs_api import (
    RayJob,
    RayJobsApi,
    RayJobsError,
    RayUnreachableError,
    check_address,
    needs_token,
)
from exgrpo.jobs.runs.processes import ATTEMPT_VARIABLE
from exgrpo.jobs.runs.state import RayContact
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.specs.verl import CPUS_PER_GPU, RAY_TOKEN_VARIABLE, ray_cpus
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE

MOST_HOSTS = 4
"""Machines that a sentence names."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster, as the probe reported it; `error` says why it could not read the nonce.

    `is_offline`: it must not ask the hub for a model that it lacks. Free memory is in bytes.
    """

    host: str
    free_gpus: int
    free_cpus: int
    error: str = ""
    nonce: str = ""
    hub_cache: str = ""
    has_model: bool = True
    is_offline: bool = False
    free_memory: int = 0
    free_shared_memory: int = 0


def check_size(machines: Sequence[Machine], spec: TrainSpec) -> None:
    """Refuse a cluster that is too small or busy; verl would wait for ever.

    Raises:
        LaunchError: Too few of its machines have the requested GPUs and CPUs.
    """
    verl, num_scoring = spec.verl, spec.reward_model.num_gpus if spec.reward_model else 0
    num_gpus, num_cpus = spec.num_gpus + num_scoring, ray_cpus(spec.num_gpus + num_scoring)
    per_node = verl.gpus_per_node + spec.generating_gpus_per_node
    fitting = [
        machine
        for machine in machines
        if machine.free_gpus >= per_node and machine.free_cpus >= CPUS_PER_GPU * per_node
    ]
    has_gpus = len(fitting) >= verl.num_nodes and sum(machine.free_gpus for machine in machines) >= num_gpus
    if has_gpus and sum(machine.free_cpus for machine in machines) >= num_cpus:
        return
    free = ", ".join(f"{machine.free_gpus} and {machine.free_cpus} on {machine.host}" for machine in machines)
    scoring = f" and {num_scoring} for the reward model" if num_scoring else ""
    raise LaunchError(
        f"{verl.num_nodes} x {per_node} GPUs{scoring} and {num_cpus} "
        f"CPUs are needed, free are {free}; add machines, wait for other jobs, lower them, or let Ray count more CPUs "
        "(`ray start --num-cpus`).",
        "verl.num_nodes",
        "verl.gpus_per_node",
    )


def probed_model(source: str) -> str:
    """Return a model that each machine must have or can download: a folder or a hub name; nothing of other sources."""
    return source if source.startswith("/") or _HUB_NAME.fullmatch(source) else ""


def check_model(machines: Sequence[Machine], source: str) -> None:
    """Refuse machines that lack the model and cannot download it; workers would fail after minutes.

    Raises:
        LaunchError: The model is a folder that some lack, or they lack a hub name and are offline.
    """
    lacking = [machine for machine in machines if not machine.has_model]
    if source.startswith("/") and lacking:
        raise LaunchError(
            f"{source} is not on {_hosts(lacking)}; put it on a file system that all machines share.", "model.source"
        )
    if offline := [machine for machine in lacking if machine.is_offline]:
        raise LaunchError(
            f"{source} is not in {offline[0].hub_cache} on {_hosts(offline)}, which HF_HUB_OFFLINE keeps "
            "from the hub; download it there, or give HF_HOME, a folder that all share, to `ray start`.",
            "model.source",
        )


def describe_machines(machines: Sequence[Machine]) -> str:
    """Return what else matters of the machines: the hub's cache, who must download the model, the least free memory."""
    caches = {
        machine.hub_cache: [other for other in machines if other.hub_cache == machine.hub_cache] for machine in machines
    }
    where = ", ".join(f"{cache} on {_hosts(some)}" if len(caches) > 1 else cache for cache, some in caches.items())
    lacking = [machine for machine in machines if not machine.has_model]
    model = f"; {_hosts(lacking)} must download the model" if lacking else ""
    memory = min(machines, key=lambda machine: machine.free_memory)
    shared = min(machines, key=lambda machine: machine.free_shared_memory)
    return (
        f"The hub's cache is {where}{model}. Least free: {memory.free_memory / GB:.0f} GB of memory on {memory.host}, "
        f"{shared.free_shared_memory / GB:.0f} GB of /dev/shm on {shared.host}."
    )


def _hosts(machines: Sequence[Machine]) -> str:
    names = [machine.host for machine in machines]
    shown = ", ".join(names[:MOST_HOSTS])
    return shown if len(names) <= MOST_HOSTS else f"{shown} and {len(names) - MOST_HOSTS} more"


PROBE_MODULE = "exgrpo.jobs.runs.launchers.ray_programs"
REACH_SECONDS = 15.0
PROBE_SECONDS = 40.0
"""Connecting and probing take at most a minute together, once the cluster takes jobs."""
SWEEP_SECONDS = 180.0
"""Finding left processes of a job may take longer: the job has ended, and the cluster answers."""

_POLL_SECONDS = 0.5
_REPORT = re.compile(rb"^EXGRPO-PROBE (\[.*\])$", re.MULTILINE)


class LaunchCancelledError(Exception):
    """A stop was requested before the job was submitted to Ray."""


class RayJobsLauncher:
    """The job of one attempt on a cluster. Its submission id is the run's id and the attempt.

    `term_seconds` pass between Ray's SIGTERM and SIGKILL when the job is stopped by force.
    """

    def __init__(
        self,
        run: RunDirectory,
        attempt: int,
        spec: TrainSpec,
        *,
        worker_module: str = WORKER_MODULE,
        term_seconds: float = 30.0,
    ) -> None:
        self._train_spec = spec
        self._spec = spec.verl
        self._worker_module = worker_module
        self._term_seconds = term_seconds
        self._attempt = attempt
        self._run_path = run.path.resolve()
        self._run_id = run.run_id
        self.attempt_path = run.attempt_path(attempt).resolve()
        self._token = os.environ.get(RAY_TOKEN_VARIABLE)
        self.api = RayJobsApi(self._spec.ray.address or "", self._token)

    @property
    def submission_id(self) -> str:
        """The job's name on the cluster."""
        return self._id_of(self._attempt)

    def check(self) -> None:
        """Check the address, without a request to the cluster.

        Raises:
            LaunchError: The job must not be sent there.
        """
        check_address(self._spec, self._token)

    def new_contact(self) -> RayContact:
        """Return the contact of the job before it is submitted."""
        return RayContact(
            attempt_path=str(self.attempt_path),
            address=self.api.address,
            submission_id=self.submission_id,
            is_submitted=False,
            is_over=False,
            log_bytes=0,
            seen_at=time.time(),
        )

    def prepare(self, is_wanted: Callable[[], bool]) -> str:
        """Check everything that a start needs of the cluster, and return one line that describes it.

        Raises:
            LaunchError: It cannot be reached, is too small, or does not share the runs root.
            LaunchCancelledError: `is_wanted` turned false.
        """
        try:
            self._reach(is_wanted)
            self._end_earlier_attempts(is_wanted)
            machines = self._find_machines(is_wanted)
        except RayJobsError as error:
            raise LaunchError(str(error)) from None
        check_size(machines, self._train_spec)
        check_model(machines, self._train_spec.model.source)
        num_gpus = sum(machine.free_gpus for machine in machines)
        found = f"Ray at {self.api.address}: {len(machines)} machines, {num_gpus} free GPUs, storage shared."
        return f"{found} {describe_machines(machines)}"

    def submit(self) -> None:
        """Submit the job to Ray; a second call changes nothing.

        It also returns if Ray does not answer: then the job may or may not have arrived.

        Raises:
            LaunchError: Ray refused it.
        """
        command = shell_command("python", "-P", "-m", self._worker_module, str(self._run_path), str(self._attempt))
        try:
            self.api.submit(self.submission_id, command, self._environment(is_worker=True))
        except RayUnreachableError:
            return
        except RayJobsError as error:
            raise LaunchError(str(error)) from None

    def sweep(self, is_wanted: Callable[[], bool]) -> str:
        """End left processes of the job on all machines; return a sentence on any that could not be ended, else "".

        Raises:
            RayJobsError: The cluster could not be asked.
            LaunchCancelledError: `is_wanted` turned false.
        """
        reports = self._probe("sweep", self.attempt_path, is_wanted)
        failed = [str(report["host"]) for report in reports if report.get("error") or report.get("num_left")]
        return f"Processes of it may be left on {', '.join(failed)}; check there." if failed else ""

    def _id_of(self, attempt: int) -> str:
        return f"{self._run_id}-{attempt:04d}"

    def _environment(self, *, is_worker: bool) -> dict[str, str]:
        folder = str(self._spec.ray.working_dir or PROJECT_ROOT)
        environment = dict(self._spec.ray.environment)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), folder]))
        if is_worker:
            environment[ATTEMPT_VARIABLE] = str(self.attempt_path)
            environment |= {name: os.environ[name] for name in [ALLOWED_CODE_VARIABLE] if name in os.environ}
            environment["RAY_JOB_STOP_WAIT_TIME_S"] = str(math.ceil(self._term_seconds))
            environment["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"  # verl also sets variables of its workers
        return environment

    def _reach(self, is_wanted: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + REACH_SECONDS
        while True:
            try:
                self.api.ray_version()
                break
            except RayUnreachableError:
                if time.monotonic() >= give_up_at:
                    raise
            _wait(is_wanted)
        if needs_token(self._spec) and not self.api.asks_for_token():
            raise LaunchError(
                f"{self.api.address}: the cluster is on another machine and needs no token; start it with "
                "RAY_AUTH_MODE=token, or allow it with verl.ray.allow_unauthenticated."
            )

    def _end_earlier_attempts(self, is_wanted: Callable[[], bool]) -> None:
        """End jobs of earlier attempts that were lost but still run, so that no two workers write to one run."""
        give_up_at = time.monotonic() + self._term_seconds + REACH_SECONDS
        for attempt in range(1, self._attempt):
            name = self._id_of(attempt)
            job = self.api.job(name)
            if job is None or job.is_over:
                continue
            self.api.stop(name)
            while job is not None and not job.is_over:
                if time.monotonic() >= give_up_at:
                    raise LaunchError(f"{name}: an earlier attempt still runs; end it: ray job stop {name}.")
                _wait(is_wanted)
                job = self.api.job(name)
            self._probe("sweep", self.attempt_path.with_name(f"{attempt:04d}"), is_wanted)

    def _find_machines(self, is_wanted: Callable[[], bool]) -> list[Machine]:
        """Ask every machine what is free, and to read a nonce in the attempt's folder."""
        file, nonce = self.attempt_path / "storage-check", secrets.token_hex(16)
        file.write_text(f"{nonce}\n{probed_model(self._train_spec.model.source)}", encoding="utf-8")
        try:
            machines = [Machine(**report) for report in self._probe("storage", file, is_wanted)]
        finally:
            file.unlink()
        if strangers := [machine for machine in machines if machine.nonce != nonce]:
            hosts = ", ".join(f"{machine.host} ({machine.error or 'another file is there'})" for machine in strangers)
            raise LaunchError(
                f"{self.attempt_path.parents[2]}: the runs root is not shared with {hosts}; mount the same file system "
                "there under the same path, or choose another --runs-root."
            )
        return machines

    def _probe(self, action: str, path: Path, is_wanted: Callable[[], bool]) -> list[dict[str, Any]]:
        """Run the probe as a separate job and return its report, a record for each machine."""
        name = f"{self.submission_id}-{action}-{secrets.token_hex(3)}"
        command = shell_command("python", "-P", "-m", PROBE_MODULE, action, str(path))
        timeout = SWEEP_SECONDS if action == "sweep" else PROBE_SECONDS
        self.api.submit(name, command, self._environment(is_worker=False))
        give_up_at = time.monotonic() + timeout
        try:
            while (job := self.api.job(name)) is not None and not job.is_over:
                if time.monotonic() >= give_up_at:
                    raise RayJobsError(
                        f"{self.api.address}: the cluster did not run a small job within {timeout:.0f} s; check "
                        "it with `ray status`."
                    )
                _wait(is_wanted)
            match = _REPORT.search(log := self.api.log(name))
        except BaseException:
            with contextlib.suppress(RayJobsError):
                self.api.stop(name)
            raise
        with contextlib.suppress(RayJobsError):
            self.api.delete(name)
        if match is None:
            raise RayJobsError(
                f"{self.api.address}: the cluster cannot run this project ({_last_line(log, job)}); activate the "
                "environment of `make verl-env` before `ray start`, and check verl.ray.working_dir."
            )
        reports: list[dict[str, Any]] = json.loads(match[1])
        return reports


def _wait(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise LaunchCancelledError
    time.sleep(_POLL_SECONDS)


def shell_command(*words: str) -> str:
    """Return a command for Ray, which passes it to a shell.

    The program replaces the shell (exec), so that it gets signals and its exit code is the job's.
    """
    return f"exec {shlex.join(words)}"


def _last_line(log: bytes, job: RayJob | None) -> str:
    lines = [line for line in log.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip().rstrip(".") if lines else (job.message if job else "Ray forgot the job")
