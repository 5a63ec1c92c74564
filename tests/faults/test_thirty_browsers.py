"""Row 19: thirty browsers look at a run that trains and at one with trajectories, each refreshing as browsers do."""

import time

import numpy as np
import psutil
import pytest

from app.page_list import PAGES
from db.connections.opening import open_database
from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.runs.control import RunStatus
from jobs.runs.state import read_state
from tests.app import judged, web_server
from tests.faults.readers import Readers, sizes, toy_supervisor
from tests.jobs.supervisor.toy_bench import Bench, toy_spec, wait_until

pytestmark = [pytest.mark.fault_row(19), pytest.mark.long_fault, pytest.mark.timeout(1200)]

SECONDS = {False: 15.0, True: 600.0}
LOOK_SECONDS = {False: (2.0, 6.0), True: (10.0, 20.0)}
NUM_BROWSERS = 30
WARM_SHARE = 0.4
MAX_P95_SECONDS = 5.0
MAX_GROWTH_BYTES = 64 * 2**20
RECORDED = "thoughts-finished"


def test_thirty_browsers_see_no_error_and_memory_stays_bounded(tmp_path, is_long, figure):
    with toy_supervisor(tmp_path) as (_, runs_root):
        database = open_database(None, runs_root)
        judged.make_run(database, runs_root, RECORDED, "finished", 12)
        database.close()
        bench = Bench(runs_root)
        live = queue_job(runs_root, toy_spec(100_000, "long-phases"))
        bench.wait_for_step(live, 2)
        workbench = web_server.start(runs_root)
        server = psutil.Process(workbench.process.pid)

        def choose(turn):
            page = PAGES[turn % len(PAGES)]
            run_id = (live, RECORDED)[turn // len(PAGES) % 2]
            return ("", {}) if page is PAGES[0] else (page.name, {"run": run_id})

        readers = Readers(
            workbench, NUM_BROWSERS, choose, lambda session, rng: session.stay(rng.uniform(*LOOK_SECONDS[is_long]))
        )
        bytes_of = []
        try:
            readers.start()
            began_at = time.monotonic()
            while time.monotonic() - began_at < SECONDS[is_long]:
                bytes_of.append(sizes(server)[0])
                time.sleep(0.5)
        finally:
            readers.end()
            workbench.stop()
        run_actions.stop(runs_root, live)
        wait_until(lambda: read_state(bench.run_of(live)).status is RunStatus.STOPPED, "the run to stop")
    assert readers.errors == []
    p50, p95 = np.quantile(readers.seconds, (0.5, 0.95))
    middle = len(bytes_of) * (1 + WARM_SHARE) / 2
    warm, last = bytes_of[int(WARM_SHARE * len(bytes_of)) : int(middle)], bytes_of[int(middle) :]
    growth = np.median(last) - np.median(warm)
    figure("pages", f"{len(readers.seconds):,} by {NUM_BROWSERS} browsers, no error")
    figure("a page", f"median {p50:.2f} s, 95% within {p95:.2f} s, slowest {max(readers.seconds):.2f} s")
    figure("memory of the web server", f"{max(bytes_of) / 2**20:.0f} MiB at most, growth {growth / 2**20:.1f} MiB")
    # In the short form each page is opened for the first time, with others of the machine beside.
    assert not is_long or (p95 <= MAX_P95_SECONDS and growth <= MAX_GROWTH_BYTES)
