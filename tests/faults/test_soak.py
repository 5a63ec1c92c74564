"""Runs back to back while twenty sessions ask for pages: nothing grows, nothing is left behind."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from jobs.actions.queueing import queue_job
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.state import read_state
from tests.app import web_server
from tests.app.page_session import PageSession
from tests.faults.readers import Choice, Readers, sizes, toy_supervisor
from tests.jobs.supervisor.toy_bench import processes_of, toy_spec, wait_until

pytestmark = [pytest.mark.fault_row(13), pytest.mark.long_fault, pytest.mark.timeout(2400)]

SECONDS = {False: 15.0, True: 1800.0}
NUM_SESSIONS = 20
PAUSE_SECONDS = 3.0
WARM_SHARE = 0.4
WINDOW_SHARE = {False: 1 / 4, True: 1 / 15}
MAX_GROWTH_BYTES = 48 * 2**20
MAX_MORE_FILES = 4
STEPS_A_RUN = 10
PAGES_OF_A_RUN = ("run", "trajectories", "replay_buffer", "selection_audit")


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    mine = os.geteuid()
    return {path.name for path in folder.glob("sem.*") if path.exists() and path.stat().st_uid == mine}


def submit_more(runs_root: Path, submitted: list[str]) -> None:
    """Keep two runs in the queue."""
    ended = sum(read_state(RunDirectory.open(runs_root, item)).is_ended for item in submitted[-3:])
    if len(submitted[-3:]) - ended < 2:
        submitted.append(queue_job(runs_root, toy_spec(STEPS_A_RUN)))


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[psutil.Process, Path]]:
    with toy_supervisor(tmp_path) as started:
        yield started


def pause(_session: PageSession, _rng: random.Random) -> list[str]:
    time.sleep(PAUSE_SECONDS)
    return []


def test_nothing_grows_and_nothing_is_left_by_runs_back_to_back(supervisor, is_long, figure):
    process, runs_root = supervisor
    submitted = [queue_job(runs_root, toy_spec(STEPS_A_RUN))]
    wait_until(lambda: state_is_success(runs_root, submitted[0]), "a run")
    semaphores = shared_memory()
    workbench = web_server.start(runs_root)

    def choose(turn: int) -> Choice:
        page = ("", *PAGES_OF_A_RUN)[turn % (len(PAGES_OF_A_RUN) + 1)]
        return page, {"run": submitted[-2 if len(submitted) > 1 else -1]} if page else {}

    readers = Readers(workbench, NUM_SESSIONS, choose, pause)
    watched = (process, psutil.Process(workbench.process.pid))
    warm, last = [], []
    try:
        readers.start()
        began_at = time.monotonic()
        while (share := (time.monotonic() - began_at) / SECONDS[is_long]) < 1.0:
            submit_more(runs_root, submitted)
            if WARM_SHARE < share < WARM_SHARE + WINDOW_SHARE[is_long]:
                warm.append([sizes(it) for it in watched])
            elif share > 1.0 - WINDOW_SHARE[is_long]:
                last.append([sizes(it) for it in watched])
            time.sleep(0.2)
    finally:
        readers.end()
        workbench.stop()
    wait_until(lambda: all(state_is_success(runs_root, run_id) for run_id in submitted), "the last runs")
    assert readers.errors == []
    assert "locked" not in (runs_root.parent / "supervisor.log").read_text()
    wait_until(lambda: set(processes_of(runs_root)) <= {process.pid}, "the last workers to leave")
    # Tests beside this one may have some for as long as they last.
    wait_until(lambda: shared_memory() <= semaphores, "shared memory to be given back")
    # What scripts hold while they run comes and goes, so medians of a while are compared.
    growth, files = (np.median(last, axis=0) - np.median(warm, axis=0)).T
    num_pages, slowest = len(readers.seconds), max(readers.seconds)
    figure("runs and pages", f"{len(submitted):,} runs, {num_pages:,} pages by {NUM_SESSIONS} sessions, no error")
    figure("slowest page", f"{slowest:.1f} s")
    figure("growth of supervisor and web server", " and ".join(f"{value / 2**20:.1f} MiB" for value in growth))
    figure("more open files", " and ".join(f"{value:.0f}" for value in files))
    # The web server of the short form has not yet shown each page to each session when it counts as warm.
    assert max(growth[: None if is_long else 1]) < MAX_GROWTH_BYTES
    assert max(files[: None if is_long else 1]) <= MAX_MORE_FILES


def state_is_success(runs_root: Path, run_id: str) -> bool:
    return read_state(RunDirectory.open(runs_root, run_id)).status is RunStatus.FINISHED
