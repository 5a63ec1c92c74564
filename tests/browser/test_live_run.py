"""A run is launched, watched, stopped and resumed in the browser, with the real supervisor and toy workers."""

import re
import subprocess
import sys

import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.recording.run_status import RunStatus
from tests.app import web_server
from tests.jobs.execution.supervisor.toy_bench import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.whole]

STEP = re.compile(r"^Step ([\d,]+) of 90,000")


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def workbench(runs_root):
    words = [sys.executable, "-m", "tests.jobs.execution.supervisor.toy_supervisor", "--runs-root", str(runs_root)]
    supervisor = subprocess.Popen(words, cwd=web_server.REPOSITORY)
    served = web_server.start(runs_root)
    yield served
    served.stop()
    for path in runs_root.glob("*/run.json"):
        run = RunDirectory.open(runs_root, path.parent.name)
        if not read_state(run).is_ended:
            run.request_stop()
            wait_until(lambda run=run: read_state(run).is_ended, "the run to stop")
    supervisor.terminate()
    supervisor.wait(60)


def step_shown(page):
    return int(STEP.match(page.get_by_text(STEP).first.inner_text())[1].replace(",", ""))


def wait_for_step_beyond(page, step):
    page.wait_for_function(
        "step => Number(document.body.textContent.match(/Step ([\\d,]+) of 90,000/)?.[1].replaceAll(',', '')) > step",
        arg=step,
    )


def test_a_run_is_launched_watched_stopped_and_resumed(open_page, runs_root):
    watched = open_page("/new_run?section=Run")
    page = watched.page
    field = page.get_by_label("Number of steps", exact=True)
    field.fill("90000")
    field.press("Enter")
    page.get_by_text("--set num_steps=90000").first.wait_for()
    page.get_by_role("button", name="Launch run").click()
    page.wait_for_url(re.compile(r"/run\?run="))
    # Streamlit draws a button with a tooltip twice and hides one.
    stop, resume = (page.locator(f".st-key-run-{name} button:visible") for name in ("stop", "resume"))
    stop.wait_for()
    page.get_by_text(STEP).first.wait_for()
    wait_for_step_beyond(page, step_shown(page))

    stop.click()
    resume.wait_for()
    stopped_at = step_shown(page)
    run_id = re.search(r"run=([\w-]+)", page.url)[1]
    state = read_state(RunDirectory.open(runs_root, run_id))
    assert state.status is RunStatus.STOPPED

    resume.click()
    stop.wait_for()
    wait_for_step_beyond(page, stopped_at)
    state = read_state(RunDirectory.open(runs_root, run_id))
    assert (state.status, state.attempt) == (RunStatus.RUNNING, 2)
    assert watched.errors == []
