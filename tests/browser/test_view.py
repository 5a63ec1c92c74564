"""`exgrpo view` in the browser: from a folder of verl's dumps to a trajectory, and on while the folder grows."""

import re

import pytest

from tests.app import web_server
from tests.browser.clicks import IDLE, open_row
from tests.jobs.runs.rollout_formats.test_verl_dumps import line

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.whole]

NUM_STEPS = 4
ANSWER = re.compile("^answer [0-9] of [0-9]$")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    root = tmp_path_factory.mktemp("dumps")
    for name in ("first", "second"):
        (root / name).mkdir()
        for step in range(1, NUM_STEPS + 1):
            rows = [line(question, rollout, float(rollout < 2), step) for question in range(4) for rollout in range(4)]
            (root / name / f"{step}.jsonl").write_text("".join(rows) + ("bad\n" if name == "second" else ""))
    return root


@pytest.fixture(scope="module")
def workbench(dumps, tmp_path_factory):
    served = web_server.view(dumps / "first", dumps / "second", cache=tmp_path_factory.mktemp("cache"))
    yield served
    served.stop()


def open_run(watched):
    """Open the newest run from the list; return its id."""
    page = watched.page
    page.get_by_text("2 of 2 runs").wait_for()
    open_row(page, "run=")
    return page.url.partition("run=")[2].partition("&")[0]


def test_dumps_are_runs_whose_trajectories_are_read_and_new_steps_are_shown_as_they_come(open_page, dumps):
    watched = open_page("/")
    page = watched.page
    run = open_run(watched)
    page.get_by_role("tab", name="Trajectories").click()
    open_row(page, "trajectory=")
    page.get_by_text(ANSWER).locator("visible=true").first.wait_for()
    watched.page.goto(f"{page.url.partition('/run')[0]}/run?run={run}")
    page.locator(IDLE).wait_for()
    before = {path: path.stat().st_mtime_ns for path in dumps.rglob("*")}
    for name in ("first", "second"):
        (dumps / name / "5.jsonl").write_text(line(0, 0, 1.0, 5))
    page.get_by_text("Step 5").first.wait_for()
    assert {path: path.stat().st_mtime_ns for path in before if path.is_file()}.items() <= before.items()
    assert watched.errors == []
