"""The list of runs as people work with many: columns, conditions, groups, and deleting with undo."""

import pytest
from streamlit.testing.v1 import AppTest

from app.components.runs import run_groups
from app.queries.answers import ask
from app.queries.runs import list_runs
from db.queries import runs
from db.queries.run_filter import RunFilter
from jobs.actions import run_bin
from tests.app import recorded
from tests.app.page_texts import texts


def column(page, name):
    return list(page.dataframe[0].value[name])


def delete(rows):
    from app.components.runs import list_actions

    list_actions.show_last()
    list_actions.show_delete(rows)


@pytest.mark.usefixtures("recorded_runs")
def test_the_reason_of_a_failure_is_in_the_row(open_page):
    page = open_page("runs", state="Failed or lost")
    assert recorded.FAILURE in column(page, "Reason")


def test_columns_in_which_no_run_has_anything_are_left_out_unless_they_were_chosen(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    usual = set(open_page("runs").dataframe[0].value)
    assert "Created" in usual
    assert not usual & {"Time left", "Health", "Reason", "Tags"}
    assert list(open_page("runs", columns="Run,Reason").dataframe[0].value) == ["Run", "Reason"]


@pytest.mark.usefixtures("recorded_runs")
def test_columns_are_chosen_any_field_of_the_specification_among_them(open_page):
    page = open_page("runs", columns="Id,Run,algorithm.experience_ratio,none.such")
    assert not page.exception
    frame = page.dataframe[0].value
    assert list(frame) == ["Id", "Run", "algorithm.experience_ratio"]
    by_id = dict(zip(frame["Id"], frame["algorithm.experience_ratio"], strict=True))
    assert (by_id["run-finished"], by_id["run-on-policy"]) == ("0.5", "0.0")
    page.multiselect(key="run-columns").set_value(["Run", "seed"]).run()
    assert list(page.dataframe[0].value) == ["Run", "seed"]
    page.button(key="columns-usual").click().run()
    assert "Reason" in page.dataframe[0].value


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("algorithm.experience_ratio=0 whole", ["on-policy whole"]),
        ("algorithm.experience_ratio>0 whole", ["exgrpo whole"]),
        ("preset=chains-on-policy", ["on-policy whole", "waits"]),
        ("algorithm.normalize_by_std=true", []),
        ("no.such.field=1", []),
        ("name>3", []),
    ],
)
@pytest.mark.usefixtures("recorded_runs")
def test_a_search_takes_conditions_on_fields(open_page, words, names):
    page = open_page("runs", q=words)
    assert not page.exception
    assert (column(page, "Run") if page.dataframe else []) == names


@pytest.mark.usefixtures("recorded_runs")
def test_runs_are_grouped_by_a_field_with_mean_and_interval(open_page):
    page = open_page("runs", group="algorithm.experience_ratio")
    assert not page.exception
    frame = page.dataframe[0].value
    assert dict(zip(frame["algorithm.experience_ratio"], frame["Runs"], strict=True)) == {"0.5": 4, "0.0": 2}
    replayed = frame.iloc[0]
    assert replayed["Batch Pass@1, %"] == pytest.approx(sum(100 * recorded.pass_at_1(n) for n in (18, 30, 11, 3)) / 4)
    page.selectbox(key="run-group").set_value("Method").run()
    assert list(page.dataframe[0].value["Method"]) == ["ExGRPO", "Dr.GRPO"]


def test_a_click_on_a_group_leads_to_its_runs_and_back(recorded_runs):  # noqa: ARG001 - the runs are read
    rows = list_runs(RunFilter())

    def page_of(cells):
        def grouped(rows, cells):
            import streamlit as st

            from app.components.runs import run_groups

            if cells:
                st.session_state["run-groups"] = {"selection": {"cells": cells}}
                run_groups._open(list(run_groups.table(rows, "Method")["Method"]))
            opened = run_groups.open_group(rows, "Method")
            st.text("none" if opened is None else " ".join(sorted(row.run_id for row in opened)))

        return AppTest.from_function(grouped, kwargs={"rows": rows, "cells": cells}).run()

    page = page_of([(1, "Runs")])
    assert not page.exception
    assert page.query_params["of"] == "Dr.GRPO"
    assert page.text[0].value == "run-on-policy run-queued"
    assert page.button(key="run-groups-back").label == "Method: Dr.GRPO"
    assert page_of([]).text[0].value == "none"


@pytest.mark.usefixtures("recorded_runs")
def test_an_open_group_lists_its_runs_and_its_button_closes_it(open_page):
    page = open_page("runs", group="Method", of="Dr.GRPO")
    assert not page.exception
    assert sorted(column(page, "Run")) == ["on-policy whole", "waits"]
    page.button(key="run-groups-back").click().run()
    assert column(page, "Method") == ["ExGRPO", "Dr.GRPO"]


def test_the_interval_of_a_group_is_students(recorded_runs):  # noqa: ARG001 - the runs are read
    rows = [ask(runs.get_run, run_id) for run_id in ("run-finished", "run-running")]
    first, second = (100 * recorded.pass_at_1(n) for n in (30, 18))
    # With two values: t = 12.706 of one degree of freedom, standard error |a - b| / 2.
    half = run_groups.table(rows, "Method")["Batch Pass@1 \u00b1 95%"][0]
    assert half == pytest.approx(12.7062 * abs(first - second) / 2, rel=1e-4)


def test_deleted_runs_are_in_the_bin_and_undo_brings_them_back(recorded_runs):
    rows = [ask(runs.get_run, run_id) for run_id in ("run-finished", "run-queued")]
    page = AppTest.from_function(delete, kwargs={"rows": rows}).run()
    page.button(key="delete").click().run()
    assert list(run_bin.list_deleted(recorded_runs)) == ["run-finished"]
    assert any("run-queued cannot be deleted: it is queued" in text for text in texts(page))
    assert ":material/check: Deleted 1 run." in texts(page)
    page.button(key="undo").click().run()
    assert run_bin.list_deleted(recorded_runs) == {}
    assert (recorded_runs / "run-finished" / "run.json").is_file()


def test_the_bin_lists_deleted_runs_restores_and_empties(recorded_runs, open_page):
    for run_id in ("run-finished", "run-failed"):
        run_bin.delete(recorded_runs, run_id)
    assert "exgrpo whole" not in column(open_page("runs"), "Run")
    page = open_page("runs", state="Bin")
    assert not page.exception
    page.button(key="restore-run-failed").click().run()
    assert list(run_bin.list_deleted(recorded_runs)) == ["run-finished"]
    page.button(key="empty-bin-now").click().run()
    assert "The bin is empty" in texts(page)
    assert (recorded_runs / "run-failed").is_dir()
