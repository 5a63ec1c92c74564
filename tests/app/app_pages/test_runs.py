import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.testing.v1 import AppTest

from app.queries import runs as run_queries
from app.queries.answers import ask
from app.queries.runs import RUNS_PAGE_SIZE
from db.connections.opening import open_database
from db.ingest import annotations
from db.queries import runs
from jobs.runs.journal import Journal, JournalKind
from tests.app import recorded
from tests.app.page_texts import texts


def column(page, name):
    return list(page.dataframe[0].value[name])


def test_empty_workbench_says_how_to_begin(open_page):
    page = open_page("runs")
    assert not page.exception
    assert "No runs yet" in texts(page)
    assert page.code[0].value == "exgrpo demo"
    assert not page.dataframe


def test_table_shows_state_progress_time_left_and_scores(runs_root, open_page):
    recorded.record(runs_root, recorded.RUNNING, recorded.FINISHED)
    page = open_page("runs")
    assert column(page, "Run") == ["exgrpo live", "exgrpo whole"]
    assert column(page, "State") == [["running"], ["finished"]]
    assert column(page, "Progress") == [60.0, 100.0]
    assert column(page, "Time left") == ["3 s", "\N{EN DASH}"]
    assert column(page, "Method") == ["ExGRPO", "ExGRPO"]
    assert round(column(page, "Batch Pass@1")[1], 1) == 58.0
    assert len(column(page, "Curve")[0]) == 18
    assert "2 of 2 runs, 1 active" in texts(page)


@pytest.mark.usefixtures("recorded_runs")
def test_state_filter_keeps_matching_runs(open_page):
    page = open_page("runs")
    page.segmented_control(key="state").set_value("Active").run()
    assert sorted(column(page, "Run")) == ["exgrpo live", "waits"]
    page.segmented_control(key="state").set_value("Failed or lost").run()
    assert column(page, "State") == [["failed"], ["failed"]]
    assert column(page, "Health")[0] == ["not finite"]


@pytest.mark.usefixtures("recorded_runs")
def test_search_needs_every_word(open_page):
    page = open_page("runs")
    page.text_input(key="q").set_value("WHOLE dr.grpo").run()
    assert column(page, "Run") == ["on-policy whole"]
    page.text_input(key="q").set_value("nothing like it").run()
    assert "No run matches" in texts(page)


@pytest.mark.usefixtures("recorded_runs")
def test_filters_in_the_address_are_kept(open_page):
    assert column(open_page("runs", state="Active", q="live"), "Run") == ["exgrpo live"]


def test_runs_of_one_name_carry_the_end_of_their_ids(runs_root, open_page):
    pair = [replace(recorded.QUEUED, run_id=run_id) for run_id in ("run-one", "run-two")]
    recorded.record(runs_root, *pair, recorded.FINISHED)
    assert column(open_page("runs"), "Run") == ["waits (one)", "waits (two)", "exgrpo whole"]


def test_archived_runs_are_hidden_until_asked_for(recorded_runs, open_page):
    archive(recorded_runs, "run-finished")
    page = open_page("runs")
    assert "exgrpo whole" not in column(page, "Run")
    page.segmented_control(key="state").set_value("Archived").run()
    assert column(page, "Run") == ["exgrpo whole"]


def archive(runs_root, run_id):
    database = open_database(None, runs_root)
    annotations.set_archived(database, run_id, True)
    database.close()


def shown_archive_button(rows):
    page = AppTest.from_function(show_archive_button, kwargs={"rows": rows}).run()
    assert not page.exception
    return page


def show_archive_button(rows):
    from app.components.runs import list_actions

    list_actions.show_archive(rows)


def test_ticked_runs_are_archived_by_the_journal_and_those_that_live_are_refused(recorded_runs):
    rows = [ask(runs.get_run, run_id) for run_id in ("run-finished", "run-queued")]
    page = shown_archive_button(rows)
    assert page.button[0].label == "Archive 2 runs"
    page.button[0].click().run()
    (entry,) = [entry for entry in Journal(recorded_runs).entries() if entry.kind is JournalKind.ARCHIVED]
    assert entry.run_id == "run-finished"
    assert page.session_state["bulk-refusals"] == ["run-queued cannot be archived: it is queued; stop it first."]


def test_archived_runs_are_listed_again_by_the_same_button(recorded_runs):
    archive(recorded_runs, "run-finished")
    page = shown_archive_button([ask(runs.get_run, "run-finished")])
    assert page.button[0].label == "List 1 run again"
    page.button[0].click().run()
    assert Journal(recorded_runs).entries()[-1].kind is JournalKind.UNARCHIVED


def test_older_runs_come_on_request_and_search_reaches_them_at_once(runs_root, open_page):
    numbers = range(RUNS_PAGE_SIZE + 5)
    many = [replace(recorded.QUEUED, run_id=f"run-{n:04d}", name=f"number {n}") for n in numbers]
    recorded.record(runs_root, *many)
    page = open_page("runs")
    assert len(column(page, "Run")) == RUNS_PAGE_SIZE
    assert f"{RUNS_PAGE_SIZE} of {len(many)} runs, {len(many)} active" in texts(page)
    page.button(key="older").click().run()
    assert column(page, "Run")[-1] == many[-1].name
    assert not [button for button in page.button if button.key == "older"]
    page = open_page("runs", q=many[-1].name)
    assert column(page, "Run") == [many[-1].name]


def hide_tables(runs_root, is_hidden):
    """Do what a database that is away does to a page: every question fails."""
    names = ("runs", "gone") if is_hidden else ("gone", "runs")
    with closing(sqlite3.connect(runs_root / "workbench" / "workbench.db")) as connection:
        connection.execute("ALTER TABLE {} RENAME TO {}".format(*names))
    st.cache_data.clear()


def test_a_database_that_is_away_is_an_error_of_the_page_until_it_is_back(recorded_runs, open_page):
    page = open_page("runs")
    hide_tables(recorded_runs, is_hidden=True)
    page.run()
    assert "UnavailableError" in str(page.exception[0].proto)
    assert "exgrpo db rebuild" in page.exception[0].message
    hide_tables(recorded_runs, is_hidden=False)
    page.run()
    assert not page.exception
    assert column(page, "Run")


def test_hostile_name_is_plain_text_in_the_table(runs_root, open_page):
    recorded.record(runs_root, recorded.HOSTILE_RUN)
    (name,) = column(open_page("runs"), "Run")
    assert name.startswith("<img src=x onerror=alert(1)> **b**")
    assert "\x1b" not in name
    assert "\u202e" not in name


def test_supervisor_that_is_away_is_reported_with_its_age(runs_root, open_page):
    recorded.beat(runs_root, datetime.now(UTC) - timedelta(seconds=40))
    sentences = texts(open_page("runs"))
    assert any("Supervisor not running" in text for text in sentences)
    assert any(text.startswith("Last seen 4") for text in sentences)


def test_live_supervisor_needs_no_banner(open_page):
    assert not any("upervisor" in text for text in texts(open_page("runs")))


def test_workbench_without_any_supervisor_says_so(runs_root, open_page):
    (runs_root / "workbench" / "supervisor.json").unlink()
    assert any("No supervisor yet" in text for text in texts(open_page("runs")))


def test_list_offers_its_rows_in_every_format(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    page = open_page("runs")
    page.session_state["export-runs"] = True
    page.run()
    assert not page.exception
    assert [button.label for button in page.download_button] == ["CSV", "Markdown", "LaTeX"]


@pytest.mark.usefixtures("recorded_runs")
def test_order_of_the_address_holds_for_all_runs_and_their_column_says_so(open_page, monkeypatch):
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", 3)
    page = open_page("runs", sort="name")
    assert column(page, "Run") == sorted(column(page, "Run"), key=str.lower)
    page.button(key="older").click().run()
    names = column(page, "Run")
    assert len(names) > 3
    assert names == sorted(names, key=str.lower)
    assert column(open_page("runs", sort="-name"), "Run") == sorted(names, key=str.lower, reverse=True)[:3]
    assert column(open_page("runs", sort="nonsense"), "Run") == column(open_page("runs"), "Run")


@pytest.mark.usefixtures("recorded_runs")
def test_a_click_on_a_head_counts_once_however_often_a_slow_browser_sends_it(open_page):
    page = open_page("runs")

    def send(table):
        selection = {"selection": {"rows": [], "columns": ["Run"], "cells": []}}
        page._run(WidgetStates(widgets=[WidgetState(id=table, string_value=json.dumps(selection))]))
        assert not page.exception
        return page.query_params["sort"], page.dataframe[0].proto.id

    first = page.dataframe[0].proto.id
    order, second = send(first)
    assert order == "name"
    order, third = send(second)
    assert order == "-name"
    page.query_params["sort"] = "name"
    assert send(second)[0] == "name"
    assert len({first, second, third}) == 3
