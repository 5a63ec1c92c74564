"""The list of runs: columns, search, order, groups, what ticked runs are asked for, and the bin."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from exgrpo.app.components.runs import run_groups
from exgrpo.app.queries import runs as run_queries
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import RUNS_PAGE_SIZE
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.sqlite_files import set_aside
from exgrpo.db.queries import runs
from exgrpo.jobs.actions import run_bin
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo_core import recording
from tests.app import recorded
from tests.app.page_texts import has_text, tables, texts

pytestmark = pytest.mark.slow


def column(page, name):
    return list(tables(page)[0].value[name])


def actions_on(*run_ids):
    """Show what can be done to ticked runs, without their table, in which no test can tick."""

    def show(rows):
        from exgrpo.app.components.runs import run_controls

        run_controls.show_last()
        run_controls.show_archive(rows)
        run_controls.show_delete(rows)
        run_controls.show_rename(rows)

    rows = [ask(runs.get_run, run_id) for run_id in run_ids]
    return AppTest.from_function(show, kwargs={"rows": rows}).run()


def test_runs_of_one_name_carry_the_end_of_their_ids(runs_root, open_page):
    pair = [replace(recorded.QUEUED, run_id=run_id) for run_id in ("run-one", "run-two")]
    recorded.record(runs_root, *pair, recorded.FINISHED)
    assert column(open_page("runs"), "Run") == ["waits (one)", "waits (two)", "exgrpo whole"]


def test_ticked_runs_are_archived_and_listed_again_and_those_that_live_are_refused(recorded_runs, open_page):
    page = actions_on("run-finished", "run-queued")
    assert page.button[0].label == "Archive 2 runs"
    page.button[0].click().run()
    (entry,) = [entry for entry in Journal(recorded_runs).entries() if entry.kind is JournalKind.ARCHIVED]
    assert entry.run_id == "run-finished"
    assert has_text(page, "run-queued cannot be archived: it is queued")
    assert ingest_all(recorded_runs, None)
    st.cache_data.clear()
    page = open_page("runs")
    assert "exgrpo whole" not in column(page, "Run")
    page.segmented_control(key="state").set_value("Archived").run()
    assert column(page, "Run") == ["exgrpo whole"]
    page = actions_on("run-finished")
    assert page.button[0].label == "List 1 run again"
    page.button[0].click().run()
    assert Journal(recorded_runs).entries()[-1].kind is JournalKind.UNARCHIVED


def test_ticked_runs_get_the_name_that_stands_there_at_the_click(recorded_runs, open_page):
    page = actions_on("run-finished", "run-queued")
    page.text_input(key="rename-name").set_value("new").run()
    page.text_input(key="rename-name").set_value("newer")
    page.button(key="rename").click().run()
    assert has_text(page, "Renamed 2 runs.")
    assert ingest_all(recorded_runs, None)
    st.cache_data.clear()
    assert {"newer 1", "newer 2"} <= set(column(open_page("runs"), "Run"))


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


def test_files_hold_every_run_that_matches_with_its_id_and_times(runs_root, open_page, exported, monkeypatch):
    numbers = range(RUNS_PAGE_SIZE + 5)
    many = [replace(recorded.QUEUED, run_id=f"run-{n:04d}", name="same name, =1") for n in numbers]
    recorded.record(runs_root, *many)
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", 1)
    monkeypatch.setattr(run_groups, "MAX_RUNS", 2)
    page = open_page("runs", group="Method", of="Dr.GRPO")
    assert len(column(page, "Run")) == 2
    assert {row["Id"] for row in exported(page, "runs")} == {run.run_id for run in many}
    rows = exported(open_page("runs"), "runs")
    assert {row["Id"] for row in rows} == {run.run_id for run in many}
    assert {row["Run"] for row in rows} == {"same name, =1"}
    assert all(datetime.fromisoformat(row["Created"]).tzinfo for row in rows)


@pytest.mark.usefixtures("recorded_shared")
@pytest.mark.parametrize(
    "query",
    [
        {"name": "runs", "q": "word " * 31},
        {"name": "run", "view": "Trajectories", "run": "run-finished", "words": "w" * 401},
    ],
)
def test_search_that_is_too_long_is_one_sentence(open_page, query):
    page = open_page(**query)
    assert has_text(page, "Not searched")
    assert not tables(page)


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
    assert column(page, "Run")


def test_file_that_was_made_anew_is_read_though_the_earlier_one_is_still_open(recorded_runs, open_page):
    page = open_page("runs")
    file = recorded_runs / "workbench" / "workbench.db"
    set_aside(file)
    with closing(open_database(None, recorded_runs)):
        st.cache_data.clear()
        page.run()
    assert not page.exception
    assert "No runs yet" in texts(page)


def test_supervisor_that_is_away_is_reported_with_its_age(runs_root, open_page):
    assert not has_text(open_page("runs"), "upervisor")
    recorded.beat(runs_root, datetime.now(UTC) - timedelta(seconds=40))
    page = open_page("runs")
    assert has_text(page, "Supervisor not running")
    assert any(text.startswith("Last seen 4") for text in texts(page))
    (runs_root / "workbench" / "supervisor.json").unlink()
    assert has_text(open_page("runs"), "No supervisor yet")


def test_pages_say_how_many_ended_runs_are_still_to_read(runs_root, open_page):
    recorded.beat(runs_root, datetime.now(UTC), num_unread=2)
    assert has_text(open_page("runs"), "Still to read: 2 ended runs")


@pytest.mark.usefixtures("recorded_shared")
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


@pytest.mark.usefixtures("recorded_shared")
def test_a_click_on_a_head_counts_once_however_often_a_slow_browser_sends_it(open_page):
    page = open_page("runs")
    for is_descending, written in ((False, "name"), (False, "name"), (True, "-name")):
        tables(page)[0].send(page, "sorted", {"name": "Run", "isDescending": is_descending})
        assert page.query_params["sort"] == written
        assert tables(page)[0].data["order"] == {"name": "Run", "isDescending": is_descending}
    tables(page)[0].send(page, "sorted", {"name": "Curve", "isDescending": True})
    assert page.query_params["sort"] == "-name"


def test_columns_in_which_no_run_has_anything_are_left_out_and_rows_come_as_csv_and_json(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    page = open_page("runs")
    usual = set(tables(page)[0].value)
    assert "Created" in usual
    assert not usual & {"Time left", "Health", "Reason", "Tags"}
    assert list(tables(open_page("runs", columns="Run,Reason"))[0].value) == ["Run", "Reason"]
    page.session_state["export-runs"] = True
    page.run()
    assert [button.label for button in page.download_button] == ["CSV", "JSON"]


@pytest.mark.usefixtures("recorded_shared")
def test_columns_are_chosen_any_field_of_the_specification_among_them(open_page):
    page = open_page("runs", columns="Id,Run,algorithm.experience_ratio,none.such")
    frame = tables(page)[0].value
    assert list(frame) == ["Id", "Run", "algorithm.experience_ratio"]
    by_id = dict(zip(frame["Id"], frame["algorithm.experience_ratio"], strict=True))
    assert (by_id["run-finished"], by_id["run-on-policy"]) == ("0.5", "0.0")
    page.multiselect(key="run-columns").set_value(["Run", "seed"]).run()
    assert list(tables(page)[0].value) == ["Run", "seed"]
    page.button(key="columns-usual").click().run()
    assert "Reason" in tables(page)[0].value


@pytest.mark.usefixtures("recorded_shared")
@pytest.mark.parametrize(
    ("name", "key", "query"),
    [
        ("runs", "run-columns", {}),
        ("compare", "choose-metrics", {"runs": "run-finished,run-running", "metrics": "loss/kl"}),
    ],
)
def test_a_refresh_sets_no_list_again_since_the_browser_would_drop_what_is_typed_into_it(open_page, name, key, query):
    page = open_page(name, **query)
    first = page.multiselect(key=key)
    assert first.value
    assert first.proto.set_value
    again = page.run().multiselect(key=key)
    assert again.value == first.value
    assert not again.proto.set_value


@pytest.mark.parametrize(
    ("setting", "values", "shown"),
    [
        ("config.optim.lr", [{"optim": {"lr": 0.5}}, {"optim": {"lr": 0.25}}, {}], ["0.25", "0.5", None]),
        ("config.note", [{"note": "b"}, {"note": "A 10"}, {"note": "a 2"}], ["a 2", "A 10", "b"]),
        ("config.is_on", [{"is_on": True}, {}, {"is_on": False}], ["false", "true", None]),
    ],
)
def test_settings_of_recorded_runs_are_columns_by_which_they_are_sorted(
    tmp_path, share, open_page, setting, values, shown
):
    for config in values:
        recording.start("mine", config, tmp_path).finish()
    ingest_all(tmp_path, None)
    share(tmp_path)
    page = open_page("runs", columns=f"Run,{setting}", sort=setting)
    assert [value if value == value else None for value in column(page, setting)] == shown


@pytest.mark.usefixtures("recorded_shared")
def test_metrics_are_columns_by_which_all_runs_are_sorted_and_groups_have_their_means(open_page):
    page = open_page("runs", columns="Id,Run,reward/pass_at_1,num_steps", sort="reward/pass_at_1")
    frame = tables(page)[0].value
    assert list(frame) == ["Id", "Run", "reward/pass_at_1", "num_steps"]
    known = [value for value in frame["reward/pass_at_1"] if value == value]
    assert known == sorted(known)
    assert known[-1] == pytest.approx(recorded.pass_at_1(30))
    tables(page)[0].send(page, "sorted", {"name": "num_steps", "isDescending": True})
    assert page.query_params["sort"] == "-num_steps"
    page = open_page("runs", columns="Run,reward/pass_at_1", group="algorithm.experience_ratio")
    replayed = tables(page)[0].value.iloc[0]
    assert (replayed["Runs"], replayed["Averaged"], replayed["Steps"]) == (4, 1, "30")
    assert replayed["reward/pass_at_1"] == pytest.approx(recorded.pass_at_1(30))


@pytest.mark.usefixtures("recorded_shared")
def test_a_click_on_a_group_lists_its_runs_and_its_button_closes_it(open_page):
    page = open_page("runs", group="Method")
    tables(page)[0].open(page, 1)
    assert page.query_params["of"] in ("Dr.GRPO", ["Dr.GRPO"])
    assert sorted(column(page, "Run")) == ["on-policy whole", "waits"]
    assert page.button(key="run-groups-back").label == "Method: Dr.GRPO"
    page.button(key="run-groups-back").click().run()
    assert column(page, "Method") == ["ExGRPO", "Dr.GRPO"]


def test_deleted_runs_are_in_the_bin_until_they_are_restored_or_it_is_emptied(recorded_runs, open_page):
    page = actions_on("run-finished", "run-queued")
    page.button(key="delete").click().run()
    assert list(run_bin.list_deleted(recorded_runs)) == ["run-finished"]
    assert has_text(page, "run-queued cannot be deleted: it is queued")
    assert ":material/check: Deleted 1 run." in texts(page)
    page.button(key="undo").click().run()
    assert run_bin.list_deleted(recorded_runs) == {}
    for run_id in ("run-finished", "run-failed"):
        run_bin.delete(recorded_runs, run_id)
    page = open_page("runs")
    assert "exgrpo whole" not in column(page, "Run")
    num_left = len(recorded.ALL) - 2  # the index has them still
    assert any(text.startswith(f"{num_left} of {num_left} runs") for text in texts(page))
    page = open_page("runs", state="Bin")
    page.button(key="restore-run-failed").click().run()
    assert list(run_bin.list_deleted(recorded_runs)) == ["run-finished"]
    ingest_all(recorded_runs, None)
    st.cache_data.clear()  # answers are shared for a second
    assert has_text(open_page("run", run="run-finished"), "exgrpo whole was deleted")
    assert has_text(open_page("compare", runs="run-finished,run-on-policy"), "run-finished (in the bin)")
    page.button(key="empty-bin-now").click().run()
    assert "The bin is empty" in texts(page)
    assert (recorded_runs / "run-failed").is_dir()
