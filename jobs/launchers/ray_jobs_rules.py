"""Checks before a job is sent to a Ray cluster; each refusal is one sentence."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from jobs.launchers.local import LaunchError
from jobs.launchers.ray_jobs_api import is_loopback
from jobs.machine.address_policy import is_link_local_name
from jobs.machine.engine_environments import Pins
from jobs.machine.gpu_needs import GpuNeeds
from jobs.specs.train import TrainSpec
from jobs.specs.verl import RAY_TOKEN_VARIABLE, VerlSpec

CPUS_PER_GPU = 3
"""CPUs that verl requests from Ray with each GPU; without them it waits for ever."""
OTHER_CPUS = 12
"""Ray's CPUs for verl's other actors on any machine: eight for storage, the rest for control and serving."""
NEEDS_NOTHING = GpuNeeds((), has_kernel=True)

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster, as the probe reported it; `error` says why it could not copy the nonce."""

    node_id: str
    host: str
    free_gpus: int
    free_cpus: int
    error: str
    versions: Mapping[str, str | None]
    needs: GpuNeeds = NEEDS_NOTHING

    @classmethod
    def of_report(cls, report: Mapping[str, Any]) -> "Machine":
        """Read a machine's part of the probe's report."""
        needs = report.get("needs")
        return cls(
            str(report["node_id"]),
            str(report["host"]),
            int(report["free_gpus"]),
            int(report["free_cpus"]),
            str(report["error"]),
            dict(report.get("versions", {})),
            NEEDS_NOTHING if needs is None else GpuNeeds(tuple(needs["missing_packages"]), bool(needs["has_kernel"])),
        )


def check_address(spec: VerlSpec, token: str | None) -> None:
    """Refuse a cluster on another machine that no token protects, unless the user allows it.

    Raises:
        LaunchError: It is another machine's and no token is set, or link-local, as metadata services are.
    """
    host = urlsplit(spec.ray.address or "").hostname or ""
    if host and is_link_local_name(host):
        raise LaunchError(
            f"{spec.ray.address}: is a link-local address, where no Ray cluster can be; name the cluster's."
        )
    if needs_token(spec) and not token:
        raise LaunchError(
            f"{spec.ray.address}: is on another machine and {RAY_TOKEN_VARIABLE} is not set; start the cluster with "
            "RAY_AUTH_MODE=token and set its token, or allow it with verl.ray.allow_unauthenticated."
        )


def needs_token(spec: VerlSpec) -> bool:
    """Whether the cluster must require a token: it is on another machine and the user does not allow it without."""
    return not (spec.ray.allow_unauthenticated or is_loopback(spec.ray.address or ""))


def plain_command(*words: str) -> str:
    """Return a command for Ray, which passes it to a shell: only words without special characters are accepted.

    The program replaces the shell (exec), so that it gets signals and its exit code is the job's.

    Raises:
        LaunchError: A word holds something else, such as a blank.
    """
    for word in words:
        if _PLAIN_WORD.fullmatch(word) is None:
            raise LaunchError(
                f"{word!r}: a job on a Ray cluster expects a path of letters, digits and _ @ % + = : , . / -; choose "
                "another --runs-root."
            )
    return f"exec {shlex.join(words)}"


def check_ray_version(address: str, version: str, pins: Sequence[Pins]) -> None:
    """Refuse a cluster of another Ray.

    Raises:
        LaunchError: It runs a version that no constraints file names.
    """
    wanted = sorted({pin.versions["ray"] for pin in pins if "ray" in pin.versions})
    if wanted and version not in wanted:
        raise LaunchError(
            f"{address}: the cluster runs Ray {version}, expected {' or '.join(wanted)}; start it from the environment "
            "of `make verl-env`."
        )


def check_versions(machines: Sequence[Machine], pins: Sequence[Pins]) -> None:
    """Refuse machines that have other versions than every constraints file.

    Raises:
        LaunchError: One of them; the message names it and what it has.
    """
    for machine in machines:
        differences = [pin.differences(machine.versions) for pin in pins]
        if differences and all(differences):
            nearest = min(differences, key=len)
            raise LaunchError(
                f"{machine.host}: {', '.join(nearest)}; install the environment of `make verl-env` there."
            )


def check_gpu_needs(machines: Sequence[Machine], spec: TrainSpec) -> None:
    """Refuse machines that lack what training on their GPUs needs; verl's workers would end at their first step.

    Raises:
        LaunchError: One of them; the message names it and the remedy.
    """
    if spec.model.device == "cpu":
        return
    for machine in machines:
        if machine.free_gpus and (problems := machine.needs.problems(spec.verl.attention)):
            raise LaunchError(f"{machine.host}: {'; '.join(problems)}.")


def check_size(machines: Sequence[Machine], spec: TrainSpec) -> None:
    """Refuse a cluster that is too small or busy; verl would wait for ever.

    Raises:
        LaunchError: Too few of its machines have the requested GPUs and CPUs.
    """
    verl, num_scoring = spec.verl, spec.reward_model.num_gpus if spec.reward_model else 0
    num_cpus = CPUS_PER_GPU * (verl.num_gpus + num_scoring) + OTHER_CPUS
    has_cpus = sum(machine.free_cpus for machine in machines) >= num_cpus
    if has_cpus and any(_fits(machines, item, verl, num_scoring) for item in range(len(machines))):
        return
    free = ", ".join(f"{machine.free_gpus} and {machine.free_cpus} on {machine.host}" for machine in machines)
    scoring = f" and {num_scoring} on one machine for the reward model" if num_scoring else ""
    raise LaunchError(
        f"verl.num_nodes, verl.gpus_per_node: {verl.num_nodes} x {verl.gpus_per_node} GPUs{scoring}, {CPUS_PER_GPU} "
        f"CPUs with each and {OTHER_CPUS} more CPUs are needed, free are {free}; add machines, wait for other jobs, "
        "lower them, or let Ray count more CPUs (`ray start --num-cpus`)."
    )


def _fits(machines: Sequence[Machine], scoring: int, verl: VerlSpec, num_scoring: int) -> bool:
    """Whether the policy fits beside a reward model on the machine with index `scoring`."""
    left = [(machine.free_gpus, machine.free_cpus) for machine in machines]
    gpus, cpus = left[scoring]
    left[scoring] = gpus - num_scoring, cpus - CPUS_PER_GPU * num_scoring
    num_fitting = sum(gpus >= verl.gpus_per_node and cpus >= CPUS_PER_GPU * verl.gpus_per_node for gpus, cpus in left)
    return min(left[scoring]) >= 0 and num_fitting >= verl.num_nodes
