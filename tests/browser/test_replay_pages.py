import re

import pytest

from tests.browser.clicks import click_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_deep_link_into_the_buffer_shows_flow_and_questions(open_page, scheme):
    watched = open_page(
        "/replay_buffer?run=play-finished&view=Flow&step=9&base=3&mark=flow:outside:2", color_scheme=scheme
    )
    page = watched.page
    page.get_by_text("From step 3 to step 9").wait_for()
    page.locator(".js-plotly-plot .sankey").wait_for()
    page.get_by_text("Questions: not stored → bucket 2").wait_for()
    page.get_by_role("tab", name="What if").click()
    page.get_by_text("Nothing changes:").wait_for()
    assert {"step=9", "base=3", "view=What+if"} <= set(re.split(r"[?&]", page.url))
    assert watched.errors == []


def test_audit_opens_a_question_on_a_click(open_page):
    watched = open_page("/selection_audit?run=play-finished")
    page = watched.page
    page.get_by_text(re.compile("checks of step 14 pass")).wait_for()
    click_until(page, 40, 50, r"question=\d+")
    page.get_by_role("heading", name=re.compile(r"^Question \d+")).wait_for()
    page.reload()
    page.get_by_role("heading", name=re.compile(r"^Question \d+")).wait_for()
    page.go_back()
    page.get_by_role("heading", name=re.compile(r"^Question \d+")).wait_for(state="detached")
    assert watched.errors == []
