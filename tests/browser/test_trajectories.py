import re

import pytest

from tests.browser.clicks import IDLE, click_until

STORY = re.compile(r"^Generated in step")

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_click_opens_a_trajectory_a_pasted_link_shows_the_same_and_back_leads_to_the_list(open_page):
    watched = open_page("/trajectories?run=play-finished&replayed=replayed")
    page = watched.page
    click_until(page, 90, 50, r"trajectory=\d+")
    page.get_by_role("tab", name="Lineage").click()
    page.get_by_text(STORY).wait_for()
    pasted = page.url
    assert {"run=play-finished", "replayed=replayed", "part=Lineage"} <= set(re.split(r"[?&]", pasted))
    again = open_page(pasted[pasted.index("/trajectories") :])
    again.page.get_by_text(STORY).wait_for()
    assert page.get_by_text(STORY).inner_text() == again.page.get_by_text(STORY).inner_text()
    page.go_back()
    page.get_by_text(STORY).wait_for(state="detached")
    page.go_back()
    page.wait_for_url(lambda address: "trajectory=" not in address)
    assert page.get_by_test_id("stDataFrame").first.is_visible()
    assert watched.errors == []
    assert again.errors == []


@pytest.mark.parametrize("part", ["Text", "Group"])
def test_hostile_text_of_a_model_is_inert(open_page, part):
    watched = open_page(f"/trajectories?run=play-finished&words=onerror&part={part}")
    page = watched.page
    click_until(page, 90, 50, r"trajectory=\d+")
    page.get_by_role("heading", name="Trajectory").wait_for()
    text = page.locator("[data-testid=stCode], [data-testid=stHtml]").get_by_text("<img src=x onerror=alert(1)> **b**")
    text.first.wait_for()
    page.locator(IDLE).wait_for()
    assert page.locator("[onerror], a[href*='evil'], img[src='x']").count() == 0
    assert watched.errors == []
