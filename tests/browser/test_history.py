"""Back and forward undo and redo what a user chose, page by page and choice by choice."""

import re
import time

import pytest

from tests.browser.clicks import click_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEADER = 19
REFRESH_SECONDS = 0.5
"""Given to a refresh of a part of a page, so that it comes first."""


def shows(page, words):
    page.get_by_text(re.compile(words)).first.wait_for()


def test_filters_of_the_list_of_runs_are_undone_one_by_one_and_redone(open_page):
    watched = open_page("/")
    page = watched.page
    shows(page, r"of \d+ runs, \d+ active")
    everything = page.get_by_text(re.compile(r"runs, \d+ active")).inner_text()
    page.get_by_role("textbox", name="Search runs").fill("whole")
    page.get_by_role("textbox", name="Search runs").press("Enter")
    page.wait_for_url(re.compile("q=whole"))
    page.get_by_role("radio", name="Failed or lost").click()
    page.wait_for_url(re.compile("state=Failed"))
    shows(page, "No run matches")
    page.go_back()
    shows(page, r"\d of \d runs, \d+ active")
    assert "state=" not in page.url
    assert page.get_by_role("textbox", name="Search runs").input_value() == "whole"
    page.go_back()
    page.get_by_text(everything).wait_for()
    assert "q=" not in page.url
    assert page.get_by_role("textbox", name="Search runs").input_value() == ""
    page.go_forward()
    page.wait_for_url(re.compile("q=whole"))
    shows(page, r"\d of \d runs, \d+ active")
    page.go_forward()
    shows(page, "No run matches")
    assert page.get_by_role("radio", name="Failed or lost").is_checked()
    assert watched.errors == []


def test_an_order_by_a_columns_head_stands_in_the_address_and_is_undone(open_page):
    watched = open_page("/")
    page = watched.page
    click_until(page, 200, HEADER, "sort=name")
    click_until(page, 200, HEADER, "sort=-name")
    page.go_back()
    page.wait_for_url(re.compile("sort=name"))
    page.wait_for_timeout(3000)
    assert "sort=name" in page.url
    page.go_back()
    page.wait_for_url(lambda address: "sort=" not in address)
    assert watched.errors == []


def test_facets_an_open_trajectory_and_its_parts_are_undone_one_by_one(open_page):
    watched = open_page("/trajectories?run=play-finished&facets=true")
    page = watched.page
    counted = page.get_by_text(re.compile("trajectories, newest first"))
    counted.wait_for()
    everything = counted.inner_text()
    page.get_by_label("Replayed").first.click()
    page.get_by_role("option", name="replayed", exact=True).click()
    page.wait_for_url(re.compile("replayed=replayed"))
    click_until(page, 90, 50, r"trajectory=\d+")
    page.get_by_role("tab", name="Lineage").click()
    page.wait_for_url(re.compile("part=Lineage"))
    shows(page, "^Generated in step")
    page.go_back()
    page.get_by_text(re.compile("^Generated in step")).wait_for(state="detached")
    assert page.get_by_role("tab", name="Text").get_attribute("aria-selected") == "true"
    page.go_back()
    page.get_by_role("tab", name="Text").wait_for(state="detached")
    assert "replayed=replayed" in page.url
    page.go_back()
    page.get_by_text(everything, exact=True).wait_for()
    assert "replayed=" not in page.url
    assert watched.errors == []


def test_a_row_that_a_step_back_closed_opens_again_on_a_click(open_page):
    watched = open_page("/trajectories?run=play-finished")
    page = watched.page
    click_until(page, 90, 50, r"trajectory=\d+")
    opened = page.url
    page.get_by_role("button", name="Close").wait_for()
    page.go_back()
    page.wait_for_url(lambda address: "trajectory=" not in address)
    click_until(page, 90, 50, r"trajectory=\d+")
    assert page.url == opened
    assert watched.errors == []


def test_a_run_is_chosen_by_typing_its_id_and_the_choice_is_undone(open_page):
    from playwright.sync_api import expect

    watched = open_page("/replay_buffer?run=play-finished")
    page = watched.page
    choice = page.get_by_role("combobox").first
    choice.click()
    choice.fill("play-failed")
    choice.press("Enter")
    page.wait_for_url(re.compile("run=play-failed"))
    expect(choice).to_have_value("broken replay", timeout=60_000)
    page.go_back()
    page.wait_for_url(re.compile("run=play-finished"))
    expect(choice).to_have_value("whole replay", timeout=60_000)
    assert watched.errors == []


def test_views_and_pages_are_undone(open_page):
    watched = open_page("/run?run=run-finished")
    page = watched.page
    page.get_by_role("tab", name="Log").click()
    page.wait_for_url(re.compile("view=Log"))
    page.get_by_role("link", name="Replay buffer").first.click()
    page.get_by_role("heading", name="Replay buffer").wait_for()
    page.go_back()
    page.wait_for_url(re.compile(r"/run\?.*view=Log"))
    page.get_by_role("tab", name="Log", selected=True).wait_for()
    page.go_back()
    page.get_by_role("tab", name="Curves", selected=True).wait_for()
    assert watched.errors == []


def test_a_choice_that_a_refresh_brings_first_stands(open_page):
    from streamlit.proto.BackMsg_pb2 import BackMsg

    watched = open_page("/run?run=run-running")
    page = watched.page
    shows(page, "Entropy and response length")
    held = []
    is_holding = was_held = False

    def hold_the_pages_own_message(socket):
        server = socket.connect_to_server()

        def pass_on(data):
            nonlocal is_holding, was_held
            message = BackMsg.FromString(data)
            asked = message.rerun_script
            is_of_the_page = message.WhichOneof("type") == "rerun_script" and not asked.fragment_id
            if is_holding and is_of_the_page:
                held.append(data)
                return
            server.send(data)
            if held and asked.fragment_id:
                is_holding, was_held = False, True
                time.sleep(REFRESH_SECONDS)
                server.send(held.pop())

        socket.on_message(pass_on)

    page.route_web_socket("**", hold_the_pages_own_message)
    page.reload()
    shows(page, "Entropy and response length")
    is_holding = True
    page.get_by_role("tab", name="Log").click()
    shows(page, "step 300 of exgrpo live")
    assert was_held
    assert "view=Log" in page.url
    assert watched.errors == []
