"""Ticks of logarithmic axes, drawn by plotly itself."""

import gzip
import itertools
import json

import pytest

from exgrpo.app.components.widgets import chart, curves
from exgrpo.app.components.widgets.curve_view import CurveView
from exgrpo.db.rows.runs import MetricPoint

pytestmark = pytest.mark.browser

PLOTLY = gzip.decompress(chart.PLOTLY.read_bytes()).decode()


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    page.set_content("<div id=chart style='width:600px'></div>")
    page.add_script_tag(content=PLOTLY)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("title", "ends", "read"),
    [
        ("Effective sample size", (0.21, 0.24), ""), ("Effective sample size", (0.2, 0.9), "80%"),
        ("Stored trajectories", (45.0, 55.0), ""), ("Stored trajectories", (10.0, 1_500.0), "1,000"),
        ("Sampler against trainer", (3e-8, 2e-5), "1e-6"), ("Sampler against trainer", (1e-6, 1.0), ""),
    ],
)  # fmt: skip
def test_a_log_axis_has_ticks_to_read_over_any_range_as_the_values_do(page, title, ends, read):
    drawn = next(one for one in curves.CHARTS if one.title == title)
    series = {drawn.curves[0].key: [MetricPoint(step, value) for step, value in enumerate(ends, start=1)]}
    figure = curves.figure_of(drawn, series, CurveView(has_log_axis=True))
    page.evaluate("({data, layout}) => Plotly.newPlot('chart', data, layout)", json.loads(figure.to_json()))
    ticks = [tick for tick in page.locator(".ytick text").all() if tick.text_content()]
    labels = {tick.text_content().replace("\N{MINUS SIGN}", "-") for tick in ticks}
    boxes = sorted((tick.bounding_box() for tick in ticks), key=lambda box: box["y"])
    assert len(labels) > 1
    assert not read or read in labels
    assert all(upper["y"] + upper["height"] <= lower["y"] + 1 for upper, lower in itertools.pairwise(boxes))
