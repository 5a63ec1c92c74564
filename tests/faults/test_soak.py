"""Runs back to back while twenty readers ask what pages ask: nothing grows, nothing is left behind."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from db.queries import metrics, runs
from db.queries.trajectory_list import count_facets, list_snippets
from db.session import Database, open_database
from db.trajectory_rows import TrajectoryFacets
from jobs import commands
from jobs.run_directory import RunDirectory
from jobs.status import RunStatus
from tests.jobs.supervisor.toy_bench import processes_of, toy_spec, wait_until

pytestmark = [pytest.mark.fault_row(13), pytest.mark.timeout(2400)]

SECONDS = {False: 15.0, True: 1800.0}
NUM_READERS = 20
POLL_SECONDS = 2.0
WARM_SHARE = 0.4
MAX_GROWTH_BYTES = 48 * 2**20
MAX_MORE_FILES = 4
STEPS_A_RUN = 10


def poll(database: Database, is_over: threading.Event, errors: list[BaseException], counts: list[int]) -> None:
    """Ask what an open list, an open run and an open list of trajectories ask every other second."""
    while not is_over.wait(POLL_SECONDS):
        try:
            shown = runs.list_runs(database, limit=100)
            runs.count_runs(database)
            for row in shown[:1]:
                metrics.metric_series(database, row.run_id, ["reward/mean", "seconds/step"], 300)
                list_snippets(database, TrajectoryFacets(run_id=row.run_id))
                count_facets(database, TrajectoryFacets(run_id=row.run_id))
            counts.append(len(shown))
        except Exception as error:  # noqa: BLE001 - a thread hands its error to the test
            errors.append(error)
            return


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    mine = os.geteuid()
    return {path.name for path in folder.glob("sem.*") if path.exists() and path.stat().st_uid == mine}


def submit_more(runs_root: Path, submitted: list[str]) -> None:
    """Keep two runs in the queue."""
    ended = sum(commands.state_of(runs_root, RunDirectory.open(runs_root, own)).is_ended for own in submitted[-3:])
    if len(submitted[-3:]) - ended < 2:
        submitted.append(commands.submit(runs_root, toy_spec(STEPS_A_RUN)))


@pytest.fixture
def supervisor(tmp_path: Path):
    runs_root = tmp_path / "runs"
    runs_root.mkdir()
    log = (tmp_path / "supervisor.log").open("wb")
    command = [sys.executable, "-m", "tests.jobs.supervisor.toy_supervisor", "--runs-root", str(runs_root)]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    yield psutil.Process(process.pid), runs_root
    process.terminate()
    process.wait(timeout=60)
    log.close()


def test_nothing_grows_and_nothing_is_left_by_runs_back_to_back(supervisor, is_long, figure):
    process, runs_root = supervisor
    submitted = [commands.submit(runs_root, toy_spec(STEPS_A_RUN))]
    wait_until(lambda: commands.state_of(runs_root, RunDirectory.open(runs_root, submitted[0])).is_ended, "a run")
    database = open_database(None, runs_root)
    is_over, errors, counts = threading.Event(), [], []
    readers = [threading.Thread(target=poll, args=(database, is_over, errors, counts)) for _ in range(NUM_READERS)]
    began_at, warm, semaphores = time.monotonic(), None, shared_memory()
    for reader in readers:
        reader.start()
    own = psutil.Process()
    while (elapsed := time.monotonic() - began_at) < SECONDS[is_long]:
        submit_more(runs_root, submitted)
        if warm is None and elapsed > WARM_SHARE * SECONDS[is_long]:
            warm = [(it.memory_info().rss, it.num_fds()) for it in (process, own)]
        time.sleep(0.2)
    assert warm is not None
    now = [(it.memory_info().rss, it.num_fds()) for it in (process, own)]
    is_over.set()
    for reader in readers:
        reader.join()
    database.close()
    wait_until(lambda: all(state_is_success(runs_root, run_id) for run_id in submitted), "the last runs")
    assert errors == []
    assert "locked" not in (runs_root.parent / "supervisor.log").read_text()
    wait_until(lambda: set(processes_of(runs_root)) <= {process.pid}, "the last workers to leave")
    assert shared_memory() - semaphores == set()
    growth = [after[0] - before[0] for before, after in zip(warm, now, strict=True)]
    files = [after[1] - before[1] for before, after in zip(warm, now, strict=True)]
    figure("runs and polls", f"{len(submitted)} runs, {len(counts):,} polls by {NUM_READERS} readers, no error")
    figure("growth of supervisor and readers", " and ".join(f"{value / 2**20:.1f} MiB" for value in growth))
    figure("more open files", " and ".join(map(str, files)))
    assert max(growth) < MAX_GROWTH_BYTES
    assert max(files) <= MAX_MORE_FILES + NUM_READERS * (not is_long)


def state_is_success(runs_root: Path, run_id: str) -> bool:
    return commands.state_of(runs_root, RunDirectory.open(runs_root, run_id)).status is RunStatus.SUCCEEDED
