import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exgrpo.jobs.runs.launchers import ray_jobs
from exgrpo.jobs.specs.verl import RAY_TOKEN_VARIABLE
from tests.jobs.execution.supervisor.toy_bench import processes_of
from tests.jobs.runs.launchers.ray_bench import RayBench
from tests.jobs.runs.launchers.ray_cluster import TOKEN, RayCluster, find_ray
from tests.tools import report_missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    ray = find_ray()
    if ray is None:
        report_missing("There is no verl environment; make it with `make verl-env`, or name it in EXGRPO_VERL_PYTHON.")
        return
    cluster = RayCluster(ray)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture
def ray_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayBench]:
    monkeypatch.setenv(RAY_TOKEN_VARIABLE, TOKEN)
    monkeypatch.setattr(ray_jobs, "PROBE_SECONDS", 150.0)  # a machine that runs many tests at once is slow
    bench = RayBench(tmp_path / "runs")
    yield bench
    if bench.supervisor is not None:
        bench.supervisor.close()
    for pid in processes_of(bench.runs_root):
        os.kill(pid, signal.SIGKILL)
