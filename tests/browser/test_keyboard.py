"""The keys of the workbench, which work wherever nobody is typing."""

import re

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_keys_search_help_and_go_to_pages_and_runs(open_page):
    watched = open_page("/")
    page = watched.page
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.locator("#keyboard-panel").wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type("whole?")
    assert page.get_by_placeholder(re.compile("^Search")).input_value() == "whole?"
    assert page.locator("#keyboard-panel").count() == 0
    page.keyboard.press("Control+k")
    page.keyboard.type("bench")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/benchmarks"))
    page.get_by_role("heading", name="Benchmarks", level=1).wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("on-policy whole")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=on-policy(%20|\\+)whole"))
    assert watched.troubles == []
