"""Whether the machines of a Ray cluster can run a job, by what each reported of itself."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exgrpo.jobs.machine.hardware import GB
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.specs.verl import CPUS_PER_GPU, ray_cpus

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
