"""Trajectories of sizes that nobody expects: the pages that show them answer all the same."""

import shutil
import time
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from exgrpo import app
from exgrpo.app import settings
from exgrpo.app.components.trajectories.trajectory_detail import PARTS
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo_core.recording.run_status import RunStatus
from tests.db.recorded_chains import Response, Step, record_steps

pytestmark = [pytest.mark.fault_row(11), pytest.mark.long_fault, pytest.mark.timeout(1200)]

TEXT_BYTES = {False: 8 * 2**20, True: 50 * 2**20}
NUM_TOKENS = {False: 200_000, True: 1_000_000}
NUM_ROLLOUTS = {False: 4_000, True: 100_000}
MAX_SECONDS = 2.0


@pytest.fixture(scope="module")
def huge_root(tmp_path_factory, is_long):
    root = tmp_path_factory.mktemp("huge")
    words = "the same words again and again $x^2$ \\boxed{9} "
    text, line = words * (TEXT_BYTES[is_long] // len(words)), "t" * NUM_TOKENS[is_long]
    groups = {
        "large": [Response(text=text), Response(text=text), Response(text="small")],
        "long": [Response(text=line, num_tokens=len(line)), Response(text="small")],
        "many": [Response(text=f"text {number}") for number in range(NUM_ROLLOUTS[is_long])],
    }
    for run_id, group in groups.items():
        run = record_steps(root, [Step({0: group})], run_id)
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    assert ingest_all(root, None)
    yield root
    shutil.rmtree(root)


def open_page(name, **query):
    page = AppTest.from_file(str(Path(app.__file__).parent / "main.py"), default_timeout=120)
    for key, value in query.items():
        page.query_params[key] = value
    return page.switch_page(f"app_pages/{name}.py").run()


PAGES = (
    ("runs", {}), ("run", {}), ("run", {"view": "Trajectories"}), ("run", {"view": "Trajectories", "q": "words"}),
    *(("run", {"view": "Trajectories", "trajectory": "0", "part": part}) for part in PARTS),
    ("run", {"view": "Trajectories", "trajectory": "0", "mathematics": "true"}), ("run", {"view": "Buffer"}),
)  # fmt: skip


@pytest.mark.parametrize("run_id", ["large", "long", "many"])
def test_pages_of_huge_trajectories_answer(huge_root, run_id, is_long, figure):
    settings.configure(settings.AppSettings(huge_root))
    slowest, by_the_clock = ("", 0.0), 0.0
    open_page("run", view="Trajectories", run="long")  # what a server loads once
    for name, query in PAGES:
        st.cache_data.clear()
        began_at, clock = time.process_time(), time.monotonic()
        page = open_page(name, run=run_id, **query)
        seconds, by_the_clock = time.process_time() - began_at, max(by_the_clock, time.monotonic() - clock)
        assert not page.exception, (name, query, page.exception)
        slowest = max(slowest, (" ".join([name, *query.values()]), seconds), key=lambda found: found[1])
        size = sum(len(str(element.value)) for kind in ("code", "markdown", "text") for element in page.get(kind))
        assert size < 2_000_000, f"{name} {query} sends {size:,} characters"
    figure(f"slowest page of {run_id}", f"{slowest[1]:.2f} s of processor time ({slowest[0]})")
    figure(f"longest wait for a page of {run_id}", f"{by_the_clock:.2f} s by the clock")
    assert slowest[1] < MAX_SECONDS or not is_long, slowest
