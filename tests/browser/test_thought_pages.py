import re

import pytest

from jobs.supervisor.open_index import ingest_all
from tests.app import judged, web_server
from tests.browser.clicks import click_until, open_popover
from tests.browser.downloads import download

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def judged_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("judged")
    judged.record_all(root)
    return root


@pytest.fixture(scope="module")
def workbench(judged_root):
    """A server over runs with verdicts."""
    served = web_server.start(judged_root)
    yield served
    served.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_shares_and_densities_are_drawn_at_a_deep_link(open_page, scheme):
    watched = open_page(f"/snowball?run={judged.JUDGED}&view=Over+steps&window=3", color_scheme=scheme)
    watched.page.locator(".js-plotly-plot .scatterlayer").nth(1).wait_for()
    assert {"window=3", "view=Over+steps"} <= set(re.split(r"[?&]", watched.page.url))
    watched.page.get_by_role("tab", name="Code and entropy").click()
    watched.page.get_by_text("Entropy by code and verdict").wait_for()
    assert watched.errors == []


def test_a_case_is_marked_and_found_again_in_its_set(open_page, judged_root):
    watched = open_page(f"/snowball?run={judged.JUDGED}&view=Cases&telling=true")
    page = watched.page
    page.get_by_text("Question 1", exact=False).first.wait_for()
    open_popover(page, "Keep", page.get_by_role("textbox", name="Set of cases").first)
    page.get_by_role("textbox", name="Set of cases").first.fill("from the browser")
    page.get_by_role("textbox", name="Set of cases").first.press("Enter")
    page.get_by_role("button", name="Keep in this set").first.click()
    page.get_by_text("Saved", exact=True).wait_for()
    assert ingest_all(judged_root, None)
    again = open_page(f"/snowball?run={judged.JUDGED}&view=Saved+cases&set=from+the+browser")
    again.page.get_by_text("1 case of 1 run").wait_for()
    assert download(again.page, "Markdown")[0].startswith("# Snowball cases: from the browser")
    assert watched.errors + again.errors == []


def test_a_disputed_trajectory_is_opened_on_a_click_and_closed_by_going_back(open_page):
    watched = open_page(f"/entropy_and_judge?run={judged.JUDGED}&view=Verdicts&judge=judge-voted&which=disputed")
    page = watched.page
    page.get_by_text("Disputed 12").wait_for()
    click_until(page, 40, 50, r"trajectory=\d+")
    page.get_by_role("heading", name=re.compile(r"^Trajectory \d+")).wait_for()
    page.get_by_text("Your verdict").wait_for()
    page.go_back()
    page.get_by_role("heading", name=re.compile(r"^Trajectory \d+")).wait_for(state="detached")
    assert watched.errors == []
