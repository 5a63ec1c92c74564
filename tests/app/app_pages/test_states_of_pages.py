"""Every page with nothing recorded, and for a running, a finished and a failed run."""

from pathlib import Path

import pytest

from app import app_pages
from app.page_list import PAGES
from tests.app.recorded import FAILED, FINISHED, RUNNING

TITLES = {page.name: None if page.name == "run" else page.title for page in PAGES}
OF_ONE_RUN = ("replay_buffer", "trajectories", "selection_audit", "snowball", "entropy_and_judge")
BADGES = {RUNNING: "running", FINISHED: "finished", FAILED: "failed"}


def opened(open_page, name, **query):
    """Open a page that says nothing of a fault and has its title; the run's page has the run's name in its place."""
    page = open_page(name, **query)
    assert not page.exception
    assert not page.error
    titles = [title.value for title in page.title]
    assert titles == [TITLES[name]] if TITLES[name] else len(titles) <= 1
    return page


@pytest.mark.parametrize("name", TITLES)
def test_page_opens_with_nothing_recorded(open_page, name):
    opened(open_page, name)


@pytest.mark.usefixtures("recorded_runs")
@pytest.mark.parametrize("run", BADGES, ids=lambda run: run.status)
@pytest.mark.parametrize("name", TITLES)
def test_page_opens_beside_a_run_in_any_state(open_page, name, run):
    page = opened(open_page, name, run=run.run_id)
    if name in OF_ONE_RUN:
        assert run.run_id in [chosen.value for chosen in page.selectbox]
    if name == "run":
        assert any(f" {BADGES[run]}]" in text.value for text in page.markdown)


def test_every_file_of_a_page_is_listed():
    files = {file.stem for file in Path(app_pages.__file__).parent.glob("*.py")} - {"__init__"}
    assert {page.name for page in PAGES} == files, "SECTIONS of app/page_list.py: add a line for each file of a page."
