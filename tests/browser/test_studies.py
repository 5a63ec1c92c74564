"""A study's runs are queued and all stopped again with one click each."""

import pytest

from jobs.runs.directory import list_run_directories
from jobs.supervisor.open_index import ingest_all
from tests.app import recorded, web_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    recorded.record(root)
    return root


@pytest.fixture(scope="module")
def workbench(runs_root):
    """A server without a supervisor, so that queued runs stay queued."""
    served = web_server.start(runs_root)
    yield served
    served.stop()


def test_one_click_queues_a_studys_run_and_one_stops_all(open_page, runs_root):
    watched = open_page("/studies?study=ablations&seeds-chains=1&cells=on-policy")
    page = watched.page
    page.get_by_role("button", name="Launch 1 missing run").click()
    page.get_by_test_id("stToast").get_by_text("Queued 1 run", exact=True).wait_for()
    (run,) = list_run_directories(runs_root)
    assert not run.stop_requested()
    assert ingest_all(runs_root, None)
    page.locator(".st-key-stop-study button:visible").click()
    page.get_by_test_id("stToast").get_by_text("Stopping 1 job", exact=True).wait_for()
    assert run.stop_requested()
    assert watched.errors == []


def test_the_launch_of_a_study_of_hundreds_of_cells_is_near_its_matrix(open_page):
    watched = open_page("/studies?study=crossover")
    button = watched.page.get_by_role("button", name="Launch 200 of 7,200 missing runs")
    button.wait_for()
    assert button.bounding_box()["y"] < 1200
    assert watched.errors == []
