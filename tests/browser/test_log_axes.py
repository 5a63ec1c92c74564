"""Ticks of logarithmic axes, drawn by plotly itself."""

import itertools
import json
from pathlib import Path

import plotly
import pytest

from app.components.widgets import curves
from app.components.widgets.curve_view import CurveView
from db.rows.runs import MetricPoint

pytestmark = pytest.mark.browser

PLOTLY = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("ends", [(0.21, 0.24), (0.2, 0.6), (45.0, 55.0), (0.8, 16.0), (3.0, 8_000.0), (1e-6, 1.0)])
def test_a_log_axis_has_ticks_to_read_over_any_range(browser, ends):
    series = {"policy/entropy": [MetricPoint(step, value) for step, value in enumerate(ends, start=1)]}
    figure = curves.figure_of(curves.CHARTS[0], series, CurveView(has_log_axis=True))
    assert figure.layout.yaxis.type == "log"
    labels, boxes = drawn_ticks(browser, figure)
    assert len(set(labels)) > 1
    assert all(upper["y"] + upper["height"] <= lower["y"] + 1 for upper, lower in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    ("chart", "ends", "read"),
    [
        ("Effective sample size", (0.2, 0.9), "80%"),
        ("Stored trajectories", (10.0, 1_500.0), "1,000"),
        ("Sampler against trainer", (3e-8, 2e-5), "1e-6"),
    ],
)
def test_ticks_of_a_log_axis_read_as_the_values_do(browser, chart, ends, read):
    shown = next(one for one in curves.CHARTS if one.title == chart)
    series = {shown.curves[0].key: [MetricPoint(step, value) for step, value in enumerate(ends, start=1)]}
    labels, _ = drawn_ticks(browser, curves.figure_of(shown, series, CurveView(has_log_axis=True)))
    assert read in labels


def drawn_ticks(browser, figure):
    """Return the labels of the y axis and their boxes, from top to bottom, as plotly draws them."""
    page = browser.new_page()
    page.set_content("<div id=chart style='width:600px'></div>")
    page.add_script_tag(content=PLOTLY)
    drawn = json.loads(figure.to_json())
    page.evaluate("({data, layout}) => Plotly.newPlot('chart', data, layout)", drawn)
    ticks = [tick for tick in page.locator(".ytick text").all() if tick.text_content()]
    labels = [tick.text_content().replace("\N{MINUS SIGN}", "-") for tick in ticks]
    boxes = sorted((tick.bounding_box() for tick in ticks), key=lambda box: box["y"])
    page.close()
    return labels, boxes
