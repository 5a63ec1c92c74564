"""What runs where Ray is: `python -m exgrpo.jobs.runs.launchers.ray_programs storage|sweep|wait ARGUMENT`.

`storage FILE` and `sweep FOLDER` run a task on every machine of the cluster and print one line of JSON, which starts
with `EXGRPO-PROBE` to differ from the output of Ray: what each machine reads in the file, a nonce and on the next line
the model of the run, whether it has that model, and how much memory is free; how much of what has
`EXGRPO_ATTEMPT_PATH=FOLDER` in its environment was ended. `wait NUMBER` waits until the cluster of RAY_ADDRESS has so
many machines.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private.state import available_resources_per_node  # as verl 0.9.1 does; Ray has no public function
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from exgrpo_core.verl_plugin.attention_kernel import hub_cache
from exgrpo_core.verl_plugin.settings import CLUSTER_VARIABLE

ANSWER_SECONDS = 40.0
LEAVE_SECONDS = 5.0
WAIT_SECONDS = 300.0


def read_nonce(file: str) -> dict[str, Any]:
    """Return what this machine reads in the file."""
    nonce = error = model = ""
    try:
        os.listdir(Path(file).parent)  # makes NFS refresh
        nonce, _, model = Path(file).read_text(encoding="utf-8").partition("\n")
    except OSError as cause:
        error = f"{cause.filename}: {cause.strerror}"
    return {"error": error, "nonce": nonce, **describe_machine(model)}


def describe_machine(model: str) -> dict[str, Any]:
    """Return where the hub's cache of this machine is, whether it has the model, and free memory, bytes."""
    cache = hub_cache()
    snapshots = cache / f"models--{model.replace('/', '--')}" / "snapshots"
    return {
        "hub_cache": str(cache),
        "has_model": not model or Path(model).exists() or any(snapshots.glob("*/config.json")),
        "is_offline": os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"),
        "free_memory": psutil.virtual_memory().available,
        "free_shared_memory": psutil.disk_usage("/dev/shm").free,
    }


def sweep(folder: str) -> dict[str, Any]:
    """Kill left processes of an attempt on this machine, and return how many there were and how many remain."""
    mark = f"EXGRPO_ATTEMPT_PATH={folder}".encode()

    def find() -> list[int]:
        pids = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
            except OSError:
                continue
        return pids

    def wait_for_end() -> list[int]:
        give_up_at = time.monotonic() + LEAVE_SECONDS
        while (left := find()) and time.monotonic() < give_up_at:
            time.sleep(0.1)
        return left

    ended = wait_for_end()
    for pid in ended:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    return {"num_ended": len(ended), "num_left": len(wait_for_end()) if ended else 0}


def ask_machines(task: Callable[[str], dict[str, Any]], path: str) -> None:
    """Run a task on each machine and print their answers."""
    ray.init(logging_level="ERROR")
    remote = ray.remote(num_cpus=0, max_retries=0)(task)
    free = available_resources_per_node()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers = [
        remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(path)
        for node in nodes
    ]
    give_up_at = time.monotonic() + ANSWER_SECONDS
    report = []
    for node, answer in zip(nodes, answers, strict=True):
        resources = free.get(node["NodeID"], {})
        about = {"host": node["NodeManagerHostname"], "error": ""}
        about |= {"free_gpus": int(resources.get("GPU", 0)), "free_cpus": int(resources.get("CPU", 0))}
        try:
            about |= ray.get(answer, timeout=max(0.1, give_up_at - time.monotonic()))
        except ray.exceptions.RayError as error:
            about["error"] = str(error).strip().splitlines()[-1]
        report.append(about)
    sys.stdout.write(f"EXGRPO-PROBE {json.dumps(report)}\n")


def wait_for_machines(num_wanted: int) -> str:
    """Return nothing once the machines are there, else a sentence on what is missing."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    address = os.environ[CLUSTER_VARIABLE]
    while not _answers(address):  # Ray itself would try for many minutes
        if time.monotonic() >= give_up_at:
            return f"{address}: Ray did not start within {WAIT_SECONDS:.0f} s; see the output of `ray start`."
        time.sleep(0.5)
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    while (num_nodes := sum(node["Alive"] for node in ray.nodes())) < num_wanted:
        if time.monotonic() >= give_up_at:
            return f"Ray has {num_nodes} of {num_wanted} machines after {WAIT_SECONDS:.0f} s; see their `ray start`."
        time.sleep(0.5)
    return ""


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    action, argument = sys.argv[1:]
    if action == "wait":
        sys.exit(wait_for_machines(int(argument)) or 0)
    ask_machines({"storage": read_nonce, "sweep": sweep}[action], argument)
