"""Checks a Ray cluster or ends processes on it: `python -m jobs.launchers.ray_jobs_probe storage|sweep FOLDER`.

The only module of this folder that loads Ray. It runs a task on every machine of the cluster and prints one line of
JSON, which starts with `EXGRPO-PROBE` to differ from the output of Ray.

`storage FOLDER` writes on each machine the content of FOLDER/question into FOLDER/answer-<node>. `sweep FOLDER` ends
what runs on any machine with `EXGRPO_ATTEMPT_PATH=FOLDER` in its environment.
"""

import importlib.metadata
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node  # as verl 0.9.1 does; Ray has no public function
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.machine.engine_environments import VERL_PACKAGES
from jobs.machine.gpu_needs import read_needs

ANSWER_SECONDS = 40.0
LEAVE_SECONDS = 5.0


def answer_question(folder: str, node_id: str) -> dict[str, Any]:
    """Copy the question into this machine's answer; return versions of packages and what GPUs need besides."""
    versions: dict[str, str | None] = {}
    for name in VERL_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    error = ""
    try:
        question = (Path(folder) / "question").read_text(encoding="ascii")
        (Path(folder) / f"answer-{node_id}").write_text(question, encoding="ascii")
    except OSError as cause:
        error = f"{cause.filename}: {cause.strerror}"
    return {"error": error, "versions": versions, "needs": asdict(read_needs())}


def sweep(folder: str, _node_id: str) -> dict[str, Any]:
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


def main(action: str, folder: str) -> None:
    """Run a task on each machine and print their answers."""
    ray.init(logging_level="ERROR")
    task = ray.remote(num_cpus=0, max_retries=0)({"storage": answer_question, "sweep": sweep}[action])
    free = available_resources_per_node()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers = {}
    for node in nodes:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers[node["NodeID"]] = task.options(scheduling_strategy=where).remote(folder, node["NodeID"])
    give_up_at = time.monotonic() + ANSWER_SECONDS
    report = []
    for node in nodes:
        about = {"node_id": node["NodeID"], "host": node["NodeManagerHostname"]}
        about["free_gpus"] = int(free.get(node["NodeID"], {}).get("GPU", 0))
        about["free_cpus"] = int(free.get(node["NodeID"], {}).get("CPU", 0))
        try:
            timeout = max(0.1, give_up_at - time.monotonic())
            about |= ray.get(answers[node["NodeID"]], timeout=timeout)
        except ray.exceptions.RayError as error:
            about["error"] = str(error).strip().splitlines()[-1]
        report.append(about)
    sys.stdout.write(f"EXGRPO-PROBE {json.dumps(report)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
