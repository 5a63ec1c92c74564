"""Back and forward undo and redo what a user chose, page by page and choice by choice."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.browser.clicks import IDLE, Between, open_row, wait_for_value

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STORY = re.compile("^Generated in step")


def shows(page, words):
    page.get_by_text(re.compile(words)).first.wait_for()


def test_filters_and_order_of_the_list_of_runs_are_undone_one_by_one_and_redone(open_page):
    watched = open_page("/")
    page = watched.page
    shows(page, r"of \d+ runs, \d+ active")
    everything = page.get_by_text(re.compile(r"runs, \d+ active")).inner_text()
    page.get_by_role("columnheader", name="Run").get_by_role("button").click()
    page.wait_for_url(re.compile("sort=name"))
    page.get_by_role("textbox", name="Search runs").fill("whole")
    page.get_by_role("textbox", name="Search runs").press("Enter")
    page.wait_for_url(re.compile("q=whole"))
    page.get_by_role("radio", name="Failed or lost").click()
    page.wait_for_url(re.compile("state=Failed"))
    shows(page, "No run matches")
    page.go_back()
    shows(page, r"\d of \d runs, \d+ active")
    page.wait_for_url(lambda url: "state=" not in url)
    wait_for_value(page.get_by_role("textbox", name="Search runs"), "whole")
    page.go_back()
    page.get_by_text(everything).wait_for()
    page.wait_for_url(lambda url: "q=" not in url and "sort=name" in url)
    wait_for_value(page.get_by_role("textbox", name="Search runs"), "")
    page.go_forward()
    page.wait_for_url(re.compile("q=whole"))
    shows(page, r"\d of \d runs, \d+ active")
    page.go_forward()
    shows(page, "No run matches")
    page.get_by_role("radio", name="Failed or lost", checked=True).wait_for()
    assert watched.errors == []


def test_facets_an_open_trajectory_and_its_parts_are_undone_one_by_one_and_a_pasted_link_shows_the_same(open_page):
    watched = open_page("/run?view=Trajectories&run=play-finished&facets=true")
    page = watched.page
    counted = page.get_by_text(re.compile("trajectories, newest first"))
    counted.wait_for()
    everything = counted.inner_text()
    page.get_by_label("Replayed").first.click()
    page.get_by_role("option", name=re.compile("^replayed")).click()
    page.wait_for_url(re.compile("replayed=replayed"))
    page.get_by_text(everything, exact=True).wait_for(state="detached")
    open_row(page, r"trajectory=\d+")
    opened = page.url
    page.get_by_role("tab", name="Lineage").click()
    page.wait_for_url(re.compile("part=Lineage"))
    page.get_by_text(STORY).wait_for()
    again = open_page(page.url[page.url.index("/run?") :])
    again.page.get_by_text(STORY).wait_for()
    assert page.get_by_text(STORY).inner_text() == again.page.get_by_text(STORY).inner_text()
    page.go_back()
    page.get_by_text(STORY).wait_for(state="detached")
    page.get_by_role("tab", name="Text", selected=True).wait_for()
    page.go_back()
    page.get_by_role("tab", name="Text").wait_for(state="detached")
    page.wait_for_url(re.compile("replayed=replayed"))
    open_row(page, r"trajectory=\d+")  # the row opens again
    page.wait_for_url(opened)
    page.go_back()
    page.get_by_role("tab", name="Text").wait_for(state="detached")
    page.go_back()
    page.get_by_text(everything, exact=True).wait_for()
    page.wait_for_url(lambda url: "replayed=" not in url)
    assert watched.errors + again.errors == []


def test_a_run_is_chosen_by_typing_its_id_and_the_choice_is_undone(open_page):
    watched = open_page("/run?view=Buffer&run=play-finished")
    page = watched.page
    page.locator(IDLE).wait_for()
    choice = page.get_by_role("combobox").first
    choice.click()
    choice.fill("play-failed")
    choice.press("Enter")
    page.wait_for_url(re.compile("run=play-failed"))
    wait_for_value(choice, "broken replay")
    page.go_back()
    page.wait_for_url(re.compile("run=play-finished"))
    wait_for_value(choice, "whole replay")
    assert watched.errors == []


def test_a_choice_that_a_refresh_brings_first_stands(open_page):
    watched = open_page("/run?run=run-running")
    page = watched.page
    between = Between(page)
    shows(page, "Response length")
    between.is_holding = True
    page.get_by_role("tab", name="Log").click()
    between.wait_for_refreshes(2)
    assert between.held
    between.release()
    shows(page, "step 300 of exgrpo live")
    page.wait_for_url(re.compile("view=Log"))
    assert watched.errors == []


def test_a_tabs_choices_leave_the_address_with_it_and_come_back_and_a_step_is_of_two_tabs(open_page):
    listed = {"list": ["Questions"], "outcome": ["correct"], "sort": ["-rollouts"], "view": ["Trajectories"]}
    run = {"run": ["play-finished"]}
    watched = open_page(f"/run?{urlencode(run | listed, doseq=True)}")
    page = watched.page
    shows(page, r"\d+ of \d+ questions")

    def opens(tab, parameters):
        page.locator(IDLE).wait_for()
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == run | parameters)

    opens("Step", {"view": ["Step"]})
    opens("Curves", {})
    opens("Trajectories", listed)
    shows(page, r"\d+ of \d+ questions")
    page = open_page("/run?view=Step&run=play-finished&step=4").page
    opens("Buffer", {"view": ["Buffer"], "step": ["4"]})
    opens("Log", {"view": ["Log"]})
    opens("Step", {"view": ["Step"], "step": ["4"]})
    page = open_page("/run?view=Reasoning&part=Verdicts&run=play-finished").page
    opens("Curves", {})
    opens("Reasoning", {"view": ["Reasoning"], "part": ["Verdicts"]})
    assert watched.errors == []


def test_a_parameter_of_another_tab_that_the_address_carries_breaks_no_tab(open_page):
    watched = open_page("/methods?view=Replay+methods&scale=paper")
    for tab in ("Studies", "Replay methods"):
        watched.page.locator(IDLE).wait_for()
        watched.page.get_by_role("tab", name=tab, exact=True).click()
        watched.page.wait_for_url(lambda url, is_methods=tab == "Replay methods": ("view=Replay" in url) == is_methods)
    watched.page.locator(IDLE).wait_for()
    assert "failed" not in watched.page.locator("body").inner_text()
    assert watched.errors == []
