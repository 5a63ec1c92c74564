import csv
import io
import json
import math
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from exgrpo.app.components.widgets import grid
from exgrpo.app.components.widgets.data_table import as_csv, as_json, as_latex, as_markdown
from exgrpo.app.components.widgets.figures import figure_rows

pytestmark = pytest.mark.slow


def read_csv(rows):
    return list(csv.reader(io.StringIO(as_csv(rows))))


def test_each_format_escapes_its_marks_and_only_csv_holds_numbers_in_full():
    rows = [
        {"Run": "a_b & 50%", "Avg@8": 0.123456, "Steps": 150, "Tags": ["x", "y"]},
        {"Run": "=SUM(A1)|<b> ~~\ne", "Avg@8": None, "Steps": np.int64(-3)},
    ]
    assert read_csv(rows) == [
        ["Run", "Avg@8", "Steps", "Tags"],
        ["a_b & 50%", "0.123456", "150", "x, y"],
        ["'=SUM(A1)|<b> ~~\ne", "", "-3", ""],
    ]
    assert as_markdown(rows).splitlines() == [
        "| Run | Avg@8 | Steps | Tags |",
        "| --- | --- | --- | --- |",
        r"| a\_b \& 50% | 0.123 | 150 | x, y |",
        "| =SUM(A1)\\|\\<b\\> \\~\\~ e | \N{EN DASH} | -3 | \N{EN DASH} |",
    ]
    lines = as_latex(rows).splitlines()
    assert lines[1] == r"\begin{tabular}{lrrl}"
    assert lines[4:6] == [r"\midrule", r"a\_b \& 50\% & 0.123 & 150 & x, y \\"]
    assert lines[6].endswith("e & \N{EN DASH} & -3 & \N{EN DASH} \\\\")


OF_FIELDS = ["seed", "algorithm.seed", "model.warm_seed", "config.data_seed", "question_index"]


@pytest.mark.parametrize("name", ["Seed", "Id", "Question", "Trajectory", "Attempt", *OF_FIELDS])
def test_a_number_that_counts_nothing_has_no_separators_in_any_format(name, monkeypatch):
    drawn = []
    monkeypatch.setattr(grid, "_component", lambda **words: drawn.append(words["data"]["columns"]) or {})
    grid.draw(pd.DataFrame({name: [12345], "Seeds": [12345]}), "key", "alt")
    assert [column["format"] for column in drawn[0]] == ["%d", None]
    rows = [{name: 12345, "Steps": 12345}, {name: 1_000_000_007.0, "Steps": None}, {name: 2**60 + 1}]
    assert [line.split(" | ")[0] for line in as_markdown(rows).splitlines()[2:]] == [
        "| 12345", "| 1000000007", "| 1152921504606846977",
    ]  # fmt: skip
    assert as_markdown(rows).splitlines()[2] == "| 12345 | 12,345 |"
    assert as_latex(rows).splitlines()[5:7] == [r"12345 & 12,345 \\", "1000000007 & \N{EN DASH} \\\\"]
    assert [row[0] for row in read_csv(rows)[1:]] == ["12345", "1000000007.0", "1152921504606846977"]
    assert [row[name] for row in json.loads(as_json(rows))] == [12345, 1_000_000_007, 2**60 + 1]


def test_whole_numbers_beside_missing_ones_are_written_whole():
    assert as_latex([{"Buffer": 24.0}, {"Buffer": None}]).splitlines()[5] == r"24 \\"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-0.5", "-0.5"), ("-x", "'-x"), ("@a", "'@a"), ("+1e3", "+1e3"), ("\u202eabc", "\\u202eabc"),
        ("\N{FULLWIDTH EQUALS SIGN}1", "'\N{FULLWIDTH EQUALS SIGN}1"),
        ("\n=1", "'\n'=1"), ("a;=1", "a;'=1"), ("a\n@b", "a\n'@b"), ("a; b\n\nc = 1", "a; b\n\nc = 1"),
    ],
)  # fmt: skip
def test_text_that_a_spreadsheet_would_run_is_text(text, written):
    assert read_csv([{"a": text}])[1] == [written]


def test_files_hold_each_value_whole():
    text = 'a, "b"\r\nc \N{GRINNING FACE} \ud83d'
    at = datetime(2026, 11, 27, 17, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    rows = [{"text": text, "at": at, "number": 0.1 + 0.2, "gap": math.nan, "far": -math.inf, "count": np.int64(2**60),
             "short": np.float32("nan"), "curve": [0.5, math.nan]}]  # fmt: skip
    text = text.replace("\r", "\N{SYMBOL FOR CARRIAGE RETURN}").replace("\ud83d", "\\ud83d")
    whole = [text, "2026-11-27T16:00:05+00:00", 0.1 + 0.2, None, "-inf", 2**60, None, "0.5, "]
    assert [list(row.values()) for row in json.loads(as_json(rows))] == [whole]
    assert read_csv(rows)[1] == ["" if value is None else str(value) for value in whole]
    assert as_csv(rows).encode()
    assert json.loads(as_json([{"a": 0.5}, {"b": 1}])) == [{"a": 0.5, "b": None}, {"a": None, "b": 1}]


def scatter(x, y, **options):
    return go.Scatter(x=x, y=y, **options)


@pytest.mark.parametrize(
    ("traces", "rows"),
    [
        (
            [scatter([1, 2], [0.5, 0.25], name="all"), scatter([2], [0.125], name="chosen")],
            [{"x": 1, "all": 0.5}, {"x": 2, "all": 0.25, "chosen": 0.125}],
        ),
        ([scatter([1], [0.5], name="score", error_y={"array": [0.1]})], [{"x": 1, "score": 0.5, "score, ± 95%": 0.1}]),
        (
            [go.Box(x=[1, 1], y=[0.5, 0.6], name="chosen")],
            [{"series": "chosen", "x": 1, "value": 0.5}, {"series": "chosen", "x": 1, "value": 0.6}],
        ),
        (
            [scatter([1.5], ["AIME"], error_x={"array": [1.0], "arrayminus": [2.0]})],
            [{"name": "AIME", "x": 1.5, "x, 95% from": -0.5, "x, 95% to": 2.5}],
        ),
        (
            [scatter([6.0, 2.0], ["a", "b"], error_x={"array": [None, 1.0], "arrayminus": [None, 0.5]})],
            [
                {"name": "a", "x": 6.0, "x, 95% from": None, "x, 95% to": None},
                {"name": "b", "x": 2.0, "x, 95% from": 1.5, "x, 95% to": 3.0},
            ],
        ),
        (
            [scatter([2], ["a"], name="mean", error_x={"array": [0.5]}), scatter([1], ["a"], name="seed")],
            [{"name": "a", "mean": 2, "mean, ± 95%": 0.5, "seed": 1}],
        ),
        (
            [go.Heatmap(x=[1, 3], y=["0/2", "1/2"], z=np.array([[5, 6], [7, 8]]))],
            [{"x": 1, "0/2": 5, "1/2": 7}, {"x": 3, "0/2": 6, "1/2": 8}],
        ),
    ],
    ids=[
        "curves-share-rows",
        "intervals",
        "places-repeat",
        "names",
        "some-have-intervals",
        "traces-share-a-name",
        "heatmap",
    ],
)
def test_values_of_a_figure_are_rows(traces, rows):
    assert figure_rows(go.Figure(traces)) == rows


def page_of_a_table():
    import pandas as pd
    import streamlit as st

    from exgrpo.app.components.widgets import data_table

    def write(rows):
        st.session_state.num_written = st.session_state.get("num_written", 0) + 1
        return data_table.as_json(rows)

    rows = [{"a": st.session_state.get("value", 1), "b": None, "c": float("nan"), "d": ["x", "y"]}]
    data_table.export(lambda: pd.DataFrame(rows), "numbers", formats={"JSON": ("json", "application/json", write)})


def test_refresh_below_an_open_menu_writes_only_other_rows_again():
    page = AppTest.from_function(page_of_a_table)
    page.session_state["export-numbers"] = True
    page.run().run()
    assert page.session_state["num_written"] == 1
    page.session_state["value"] = 2
    page.run().run()
    assert not page.exception
    assert page.session_state["num_written"] == 2
