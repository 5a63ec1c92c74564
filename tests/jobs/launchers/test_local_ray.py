"""A verl job without a cluster starts a Ray of its own, which ends with the job even where that was killed."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.runs.control import RunStatus
from jobs.runs.processes import ProcessIdentity, group_members, identify
from tests.jobs.launchers.ray_bench import RayBench, ray_spec
from tests.jobs.launchers.ray_cluster import find_ray
from tests.tools import report_missing

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture
def local_bench(ray_bench: RayBench) -> Iterator[RayBench]:
    if find_ray() is None:
        report_missing("There is no verl environment; make it with `make verl-env`, or name it in EXGRPO_VERL_PYTHON.")
    yield ray_bench
    for session in ray_bench.runs_root.glob("*/session"):
        shutil.rmtree(Path(session.read_text()), ignore_errors=True)


def names_of(worker: ProcessIdentity) -> set[str]:
    """Names of living processes of the worker's session."""
    found = set()
    for pid in group_members(worker):
        with contextlib.suppress(psutil.Error):
            found.add(psutil.Process(pid).name())
    return found


def test_ray_of_a_worker_that_is_killed_leaves_no_process(local_bench: RayBench):
    run_id = local_bench.submit(ray_spec(None, 100_000, "starts-ray"))
    local_bench.start()
    local_bench.look_until(run_id, RunStatus.RUNNING)
    session = local_bench.run_of(run_id).path / "session"
    local_bench.look_while(lambda: not session.exists(), "a Ray of its own")
    worker = identify(local_bench.worker_pid(run_id))
    assert {"raylet", "gcs_server", "ray::DashboardAgent"} <= names_of(worker)
    os.kill(worker.pid, signal.SIGKILL)
    local_bench.look_until(run_id, RunStatus.LOST)
    assert names_of(worker) == set()
