"""The keys of the workbench, which work wherever nobody is typing."""

import re

import pytest

from tests.browser.clicks import rows, wait_for_value

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_keys_search_help_and_go_to_pages_and_runs(open_page):
    watched = open_page("/")
    page = watched.page
    rows(page).first.wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.locator("#keyboard-panel").wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type("whole?")
    wait_for_value(page.get_by_placeholder(re.compile("^Search")), "whole?")
    assert page.locator("#keyboard-panel").count() == 0
    page.keyboard.press("Control+k")
    page.keyboard.type("bench")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/benchmarks"))
    page.get_by_role("heading", name="Benchmarks", level=1).wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("on-policy whole")
    page.locator("#keyboard-panel option", has_text="Run: on-policy whole").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/run\?run=run-on-policy"))
    assert watched.errors == []


@pytest.mark.parametrize(
    ("path", "opened"), [("/?q=whole", r"/run\?run="), ("/run?view=Trajectories&run=play-finished", "trajectory=")]
)
def test_keys_move_through_the_rows_and_open_one(open_page, path, opened):
    watched = open_page(path)
    page = watched.page
    rows(page).nth(1).wait_for()
    marked = []
    for key in ("j", "j", "k", "ArrowDown"):
        page.keyboard.press(key)
        marked.append(page.evaluate("document.activeElement.sectionRowIndex"))
    assert marked == [0, 1, 0, 1]
    page.keyboard.press("Escape")
    page.wait_for_function("document.activeElement.tagName === 'BODY'")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(opened))
    assert watched.errors == []
