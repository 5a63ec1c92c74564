import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.execution.supervisor.toy_bench import Bench, processes_of


@contextmanager
def opened_bench(runs_root: Path) -> Iterator[Bench]:
    bench = Bench(runs_root)
    yield bench
    if bench.supervisor is not None:
        bench.supervisor.close()
    bench.index.close()
    for pid in processes_of(runs_root):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "runs").mkdir()
    with opened_bench(tmp_path / "runs") as bench:
        yield bench
