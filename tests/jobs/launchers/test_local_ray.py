"""A verl job without a cluster starts a Ray of its own, which ends with it however it ends."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs import commands
from jobs.launchers.processes import ATTEMPT_VARIABLE
from jobs.status import RunStatus
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


def names_of(bench: RayBench, run_id: str) -> list[str]:
    """Names of living processes that were started for the run's first attempt."""
    mark = str(bench.run_of(run_id).attempt_path(1).resolve())
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(ATTEMPT_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("is_killed", [True, False])
def test_ray_of_a_worker_that_ends_leaves_no_process(local_bench: RayBench, is_killed):
    run_id = local_bench.submit(ray_spec(None, 100_000, "starts-ray"))
    local_bench.start()
    local_bench.look_until(run_id, RunStatus.RUNNING)
    session = local_bench.run_of(run_id).path / "session"
    local_bench.look_while(lambda: not session.exists(), "a Ray of its own")
    assert {"raylet", "gcs_server"} <= set(names_of(local_bench, run_id))
    if is_killed:
        os.kill(local_bench.worker_pid(run_id), signal.SIGKILL)
    else:
        commands.stop(local_bench.runs_root, run_id)
    local_bench.look_until(run_id, RunStatus.LOST if is_killed else RunStatus.STOPPED)
    assert names_of(local_bench, run_id) == []
