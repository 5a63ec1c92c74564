import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.execution.supervisor.toy_bench import Bench, processes_of


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "runs")
    bench.runs_root.mkdir()
    yield bench
    if bench.supervisor is not None:
        bench.supervisor.close()
    bench.index.close()
    for pid in processes_of(bench.runs_root):
        os.kill(pid, signal.SIGKILL)
