import shlex
import time

import pytest

from jobs.launchers.local import LaunchError
from jobs.launchers.ray_cluster_state import RayClusterState, read_cluster
from jobs.launchers.ray_jobs_api import RayJobsApi
from jobs.specs.verl import RAY_TOKEN_VARIABLE
from tests.jobs.launchers.ray_cluster import NUM_GPUS, TOKEN, RayCluster

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(600)]

HOLDS_A_GPU = """
import ray, time
ray.init()
ray.get(ray.remote(num_gpus=1)(lambda: time.sleep(600)).remote())
"""


def num_used(state: RayClusterState) -> int:
    return sum(machine.num_used_gpus for machine in state.machines)


def test_cluster_tells_its_version_gpus_and_running_jobs(cluster: RayCluster, monkeypatch):
    monkeypatch.setenv(RAY_TOKEN_VARIABLE, TOKEN)
    api = RayJobsApi(cluster.address, TOKEN)
    api.submit("held-0001", f"python -c {shlex.quote(HOLDS_A_GPU)}", {})
    give_up_at = time.monotonic() + 120
    while num_used(state := read_cluster(cluster.address)) != 1:
        assert time.monotonic() < give_up_at, (state, api.log("held-0001"))
        time.sleep(0.5)
    assert state.ray_version == "2.60.0"
    assert [machine.num_gpus for machine in state.machines] == [NUM_GPUS]
    assert state.running_jobs == ("held-0001",)
    assert state.problems == ()
    api.stop("held-0001")
    api.close()


def test_wrong_token_is_refused_in_one_sentence(cluster: RayCluster, monkeypatch):
    monkeypatch.setenv(RAY_TOKEN_VARIABLE, "0" * 64)
    with pytest.raises(LaunchError, match="refuses the token"):
        read_cluster(cluster.address)
