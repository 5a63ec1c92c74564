import csv
import io
import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from app.components.replay_buffer import buffer_charts
from app.components.replay_buffer.chosen_bar import View
from app.components.widgets import curves
from app.components.widgets.exports import FORMATS, as_csv, as_latex, as_markdown
from app.components.widgets.figures import figure_rows
from db.rows.replays import BufferState
from db.rows.runs import MetricPoint

ROWS = [
    {"Run": "a_b & 50%", "Avg@8": 0.123456, "Steps": 150, "Tags": ["x", "y"]},
    {"Run": "=SUM(A1)|<b>", "Avg@8": None, "Steps": np.int64(-3)},
]


def read_csv(text):
    return list(csv.reader(io.StringIO(text)))


def test_csv_holds_numbers_in_full_and_reads_back():
    assert read_csv(as_csv(ROWS)) == [
        ["Run", "Avg@8", "Steps", "Tags"],
        ["a_b & 50%", "0.123456", "150", "x, y"],
        ["'=SUM(A1)|<b>", "", "-3", ""],
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-0.5", "-0.5"), ("-x", "'-x"), ("@a", "'@a"), ("+1e3", "+1e3"),
        ("\N{FULLWIDTH EQUALS SIGN}1", "'\N{FULLWIDTH EQUALS SIGN}1"),
        ("\n=1", "'\n'=1"), ("a;=1", "a;'=1"), ("a\n@b", "a\n'@b"), ("a; b\n\nc = 1", "a; b\n\nc = 1"),
    ],
)  # fmt: skip
def test_text_that_a_spreadsheet_would_run_is_text(text, written):
    assert read_csv(as_csv([{"a": text}]))[1] == [written]


def test_markdown_escapes_marks():
    assert as_markdown(ROWS).splitlines() == [
        "| Run | Avg@8 | Steps | Tags |",
        "| --- | --- | --- | --- |",
        r"| a\_b \& 50% | 0.1235 | 150 | x, y |",
        "| =SUM(A1)\\|\\<b\\> | \N{EN DASH} | -3 | \N{EN DASH} |",
    ]


def test_entities_and_strokes_of_markdown_are_text():
    assert as_markdown([{"a": "~~no~~ &lt;b&gt;"}]).splitlines()[2] == r"| \~\~no\~\~ \&lt;b\&gt; |"


def test_latex_uses_booktabs_and_escapes_marks():
    lines = as_latex(ROWS).splitlines()
    assert lines[4:6] == [r"\midrule", r"a\_b \& 50\% & 0.1235 & 150 & x, y \\"]
    assert lines[6] == "=SUM(A1)|<b> & \N{EN DASH} & -3 & \N{EN DASH} \\\\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


def test_frame_and_rows_write_the_same_and_values_that_are_not_finite_do_not_fail():
    frame = pd.DataFrame({"a": [1.5, math.inf], "b": [True, False]})
    rows = [{"a": 1.5, "b": True}, {"a": math.inf, "b": False}]
    for _, _, written in FORMATS.values():
        assert written(frame) == written(rows)
    assert "inf" in as_markdown(frame)
    assert "| yes |" in as_markdown(frame)


def test_text_that_changes_the_direction_or_breaks_a_line_stays_in_its_cell():
    assert len(as_markdown([{"a": "one\ntwo"}]).splitlines()) == 3
    assert "\u202e" not in as_csv([{"a": "\u202eabc"}])


def test_curves_of_a_figure_share_the_rows_of_their_steps():
    chart = curves.CHARTS[0]
    series = {
        "policy/entropy": [MetricPoint(1, 0.5), MetricPoint(2, 0.25)],
        "replay/entropy_chosen": [MetricPoint(2, 0.125)],
    }
    assert figure_rows(curves.figure_of(chart, series)) == [
        {"step": 1, "fresh rollouts": 0.5},
        {"step": 2, "fresh rollouts": 0.25, "replayed: chosen": 0.125},
    ]


def test_intervals_are_columns_and_places_that_repeat_are_points():
    figure = go.Figure(go.Scatter(x=[1, 2], y=[0.5, 0.6], name="score", error_y={"array": [0.1, 0.2]}))
    assert figure_rows(figure)[1] == {"x": 2, "score": 0.6, "score, half interval": 0.2}
    boxes = go.Figure(go.Box(x=[1, 1], y=[0.5, 0.6], name="chosen"))
    assert figure_rows(boxes) == [
        {"series": "chosen", "x": 1, "value": 0.5},
        {"series": "chosen", "x": 1, "value": 0.6},
    ]


def test_intervals_of_named_rows_are_kept_under_their_names():
    error = {"array": [0.5, 1.0], "arrayminus": [0.25, 2.0], "symmetric": False}
    bars = go.Scatter(x=[1.5, 1.5], y=["MATH", "AIME"], error_x=error)
    figure = go.Figure(bars, layout={"xaxis": {"title": {"text": "points"}}})
    assert figure_rows(figure) == [
        {"name": "MATH", "points": 1.5, "points, least": 1.25, "points, largest": 2.0},
        {"name": "AIME", "points": 1.5, "points, least": -0.5, "points, largest": 2.5},
    ]


def test_intervals_are_beside_points_that_share_a_name():
    figure = go.Figure(go.Scatter(x=[2.0], y=["on-policy"], name="mean", error_x={"array": [0.5]}))
    figure.add_trace(go.Scatter(x=[1.5, 2.5], y=["on-policy"] * 2, name="seed"))
    assert figure_rows(figure) == [
        {"series": "mean", "name": "on-policy", "value": 2.0, "half interval": 0.5},
        {"series": "seed", "name": "on-policy", "value": 1.5},
        {"series": "seed", "name": "on-policy", "value": 2.5},
    ]


def test_heatmap_is_a_column_a_row_and_a_flow_is_a_row_a_way():
    grid = go.Figure(go.Heatmap(x=[1, 3], y=["0/2", "1/2"], z=np.array([[5, 6], [7, 8]])))
    assert figure_rows(grid) == [{"x": 1, "0/2": 5, "1/2": 7}, {"x": 3, "0/2": 6, "1/2": 8}]
    before, after = BufferState({1: 2}, frozenset()), BufferState({1: 3}, frozenset({2}))
    flow = buffer_charts.flow(View("run", 2, 1, after, before))
    assert {"from": "bucket 2", "to": "bucket 3", "value": 1} in figure_rows(flow)


def page():
    from app.components.widgets import exports

    exports.show(lambda: [{"a": 1}], "numbers")


def test_closed_menu_holds_nothing_and_an_open_one_a_button_a_format():
    opened = AppTest.from_function(page).run()
    assert not opened.download_button
    opened.session_state["export-numbers"] = True
    opened.run()
    assert not opened.exception
    assert [button.label for button in opened.download_button] == list(FORMATS)
