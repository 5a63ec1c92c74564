"""Row 13: runs back to back while twenty sessions go through all pages: nothing grows, nothing is left behind."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from exgrpo.app.page_list import PLACES
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.recording.run_status import RunStatus
from tests.app import web_server
from tests.app.page_session import page_session
from tests.jobs.execution.supervisor.toy_bench import processes_of, toy_spec, wait_until

pytestmark = [pytest.mark.fault_row(13), pytest.mark.long_fault, pytest.mark.timeout(2400)]

SECONDS = {False: 15.0, True: 1800.0}
NUM_SESSIONS = 20
PAUSE_SECONDS = 3.0
WARM_SHARE = 0.4
WINDOW_SHARE = {False: 1 / 4, True: 1 / 15}
MAX_GROWTH_BYTES = 48 * 2**20
MAX_MORE_FILES = 4
STEPS_A_RUN = 10
PAGES = [place for place in PLACES if place[0] in {"runs", "run"}]


@pytest.fixture
def supervisor(tmp_path):
    """A real supervisor of toy runs and its runs root; `supervisor.log` has what it says."""
    runs_root = tmp_path / "runs"
    runs_root.mkdir()
    command = [sys.executable, "-m", "tests.jobs.execution.supervisor.toy_supervisor", "--runs-root", str(runs_root)]
    with (tmp_path / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        yield psutil.Process(process.pid), runs_root
        process.terminate()
        process.wait(timeout=60)


class Readers:
    """Sessions that each go from page to page of the newest run that has begun, until `end`."""

    def __init__(self, workbench, submitted):
        self._workbench, self._submitted = workbench, submitted
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(NUM_SESSIONS)]
        self.errors: list[object] = []
        self.seconds: list[float] = []
        for thread in self._threads:
            thread.start()

    def end(self):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _read(self, number):
        turn = number
        try:
            with page_session(self._workbench) as session:
                while not self._is_over.is_set():
                    (page, query), run_id = PAGES[turn % len(PAGES)], self._submitted[-2:][0]
                    began_at = time.monotonic()
                    self.errors += session.open("" if page == "runs" else page, run=run_id, **query)
                    self.seconds.append(time.monotonic() - began_at)
                    time.sleep(PAUSE_SECONDS)
                    turn += 1
        except Exception as error:  # noqa: BLE001 - a thread hands its error to the test
            self.errors.append(error)


def sizes(process):
    return process.memory_info().rss, process.num_fds()


def shared_memory():
    mine = os.geteuid()
    return {path.name for path in Path("/dev/shm").glob("sem.*") if path.exists() and path.stat().st_uid == mine}


def submit_more(runs_root, submitted):
    ended = sum(read_state(RunDirectory.open(runs_root, item)).is_ended for item in submitted[-3:])
    if len(submitted[-3:]) - ended < 2:
        submitted.append(queue_job(runs_root, toy_spec(STEPS_A_RUN)))


def test_nothing_grows_and_nothing_is_left_by_runs_back_to_back(supervisor, is_long, figure):
    process, runs_root = supervisor
    submitted = [queue_job(runs_root, toy_spec(STEPS_A_RUN))]
    wait_until(lambda: is_finished(runs_root, submitted[0]), "a run")
    semaphores = shared_memory()
    workbench = web_server.start(runs_root)
    readers = Readers(workbench, submitted)
    watched = (process, psutil.Process(workbench.process.pid))
    warm, last = [], []
    try:
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
    wait_until(lambda: all(is_finished(runs_root, run_id) for run_id in submitted), "the last runs")
    assert readers.errors == []
    assert "locked" not in (runs_root.parent / "supervisor.log").read_text()
    wait_until(lambda: set(processes_of(runs_root)) <= {process.pid}, "the last workers to leave")
    # Tests next to this one may have some for as long as they last.
    wait_until(lambda: shared_memory() <= semaphores, "shared memory to be given back")
    # What scripts hold while they run comes and goes, so medians of a while are compared.
    growth, files = (np.median(last, axis=0) - np.median(warm, axis=0)).T
    p95 = np.quantile(readers.seconds, 0.95)
    num_pages = f"{len(submitted):,} runs, {len(readers.seconds):,} pages by {NUM_SESSIONS} sessions, no error"
    figure("runs and pages", num_pages)
    figure("a page", f"95% within {p95:.2f} s, slowest {max(readers.seconds):.1f} s")
    figure("growth of supervisor and web server", " and ".join(f"{value / 2**20:.1f} MiB" for value in growth))
    figure("more open files", " and ".join(f"{value:.0f}" for value in files))
    # The web server of the short form has not yet shown each page to each session when it counts as warm.
    assert max(growth[: None if is_long else 1]) < MAX_GROWTH_BYTES
    assert max(files[: None if is_long else 1]) <= MAX_MORE_FILES


def is_finished(runs_root, run_id):
    return read_state(RunDirectory.open(runs_root, run_id)).status is RunStatus.FINISHED
