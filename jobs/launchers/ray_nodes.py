"""Waits until the cluster of RAY_ADDRESS has so many machines: `python -P -m jobs.launchers.ray_nodes NUMBER`."""

import os
import socket
import sys
import time

import ray

from jobs.specs.verl import CLUSTER_VARIABLE

WAIT_SECONDS = 300.0


def main(num_wanted: int) -> str:
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
    sys.exit(main(int(sys.argv[1])) or 0)
