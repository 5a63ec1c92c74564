import logging
from typing import get_args

import numpy as np
import plotly.graph_objects as go
import pytest
from streamlit import error_util
from streamlit.testing.v1 import AppTest

from exgrpo.app import theme
from exgrpo.app.components.replay_buffer import buffer_over_steps
from exgrpo.app.components.widgets import curves, figures
from exgrpo.app.components.widgets.curve_view import CurveView, Line
from exgrpo.app.components.widgets.run_state import HEALTH, STATES
from exgrpo.app.queries.answers import UnavailableError
from exgrpo.app.serving import server
from exgrpo.db.rows.runs import Badge, MetricPoint
from exgrpo.jobs.runs.report import HEALTH_SENTENCES
from exgrpo.jobs.specs.base import PARTS as REWARD_PARTS
from exgrpo_core.recording.run_status import ENDED, LIVE, RunStatus
from exgrpo_core.step_report import METRICS

pytestmark = pytest.mark.slow


def points(*values):
    return [MetricPoint(step, value) for step, value in enumerate(values, start=1)]


def test_every_curve_is_a_declared_metric_and_every_part_of_a_reward_and_bound_has_one():
    assert set(curves.KEYS) | set(buffer_over_steps.KEYS) <= set(METRICS)
    assert {f"reward/{part}" for part in REWARD_PARTS} <= {*curves.KEYS}
    assert {curve.name for curve in curves.VARIANCE_BOUNDS.curves} == set(curves.BOUNDS)


@pytest.mark.parametrize(
    ("values", "dots"),
    [
        ([np.nan, 0.5, np.nan, 0.25, 0.5], [1]), ([0.5], [0]), ([0.5, np.inf, 0.25, np.nan, 1.0, 2.0], [0, 2]),
        ([0.5, 0.25], []), ([0.5, 0.25, np.nan, np.nan, 0.125], [4]), ([np.nan, -np.inf], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("chart", [curves.CHARTS[0], curves.GROUPS["Timing"][0]])
def test_value_between_gaps_is_a_dot_and_infinite_ones_are_counted(values, dots, smoothing, chart):
    key = chart.curves[0].key
    figure = curves.figure_of(chart, {key: points(*values)}, CurveView(smoothing=smoothing))
    for trace in figure.data:
        sizes = np.zeros(len(values)) if trace.marker.size is None else np.asarray(trace.marker.size)
        assert np.flatnonzero(sizes).tolist() == dots
        assert trace.mode == ("lines+markers" if dots else "lines")
    assert figure.data[-1].name.endswith("not drawn)") == (np.isinf(values).any() or np.isnan(values).all())


def test_a_file_names_the_curves_that_the_page_names_elsewhere():
    figure = figures.new_figure()
    for index, name in enumerate("ab"):
        figures.add_line(figure, name, Line(np.arange(3.0), np.ones(3)), theme.look_of_run(index))
    figures.show_left_out_only(figure)
    assert figure.layout.showlegend is False
    assert [trace.showlegend for trace in figure.data] == [None, None]


@pytest.mark.parametrize(("last_step", "dtick"), [(1, 1), (13, 1), (14, None)])
def test_few_steps_are_ticked_one_by_one_and_never_between(last_step, dtick):
    figure = curves.figure_of(curves.CHARTS[0], {"policy/entropy": points(*[0.5] * last_step)})
    figures.mark_whole_steps(figure)
    assert figure.layout.xaxis.dtick == dtick


def test_every_state_has_a_name_live_states_have_not_ended_and_colours_are_distinct():
    assert set(STATES) == {status.value for status in RunStatus} | {"imported", "growing"}
    assert {*RunStatus} - {*ENDED} == {*LIVE}
    assert set(HEALTH) == set(HEALTH_SENTENCES) == {*get_args(Badge)}
    assert len({*theme.LIGHT.wheel}) == len({*theme.DARK.wheel}) == len(theme.LIGHT.wheel)


def test_failure_is_one_sentence_without_a_traceback():
    def page():
        from exgrpo.app.serving import server

        server.show_failure(ValueError("the file is gone\n  File x, line 3"))

    opened = AppTest.from_function(page).run()
    assert not opened.exception
    assert opened.markdown[1].value == "the file is gone (The server's log has the details.)"


@pytest.mark.parametrize(("error", "is_fault"), [(UnavailableError("away"), False), (ValueError("odd"), True)])
def test_tracebacks_are_logged_but_not_of_a_database_that_is_away(error, is_fault):
    record = logging.LogRecord(server.LOG, logging.ERROR, __file__, 1, "", (), (type(error), error, None))
    assert server.is_fault(record) is is_fault
    assert error_util._LOGGER.name == server.LOG


@pytest.mark.parametrize(("values", "wanted"), [([5e-5, 2e-5], "power"), ([0.5, 2e-5], None), (["a", "b"], None)])
def test_tiny_values_are_powers_of_ten_instead_of_micro(values, wanted):
    figure = go.Figure(go.Scatter(x=[1, 2], y=values))
    figures.use_powers_of_ten(figure)
    assert figure.layout.yaxis.exponentformat == wanted
