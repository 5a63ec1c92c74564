"""The one chart of all pages."""

import gzip
import re

import pytest
from streamlit.testing.v1 import AppTest

from exgrpo.app.components.widgets import chart
from tests.app.charts import figures
from tests.house.tracked import read, source_files

pytestmark = pytest.mark.slow


def page():
    import plotly.graph_objects as go

    from exgrpo.app.components.widgets import chart

    chart.show(go.Figure(go.Bar(x=["a"], y=[1.5]), layout={"height": 170}), "bars", 'Bars: "a" alone')


def test_a_chart_sends_its_figure_its_words_and_its_height_to_the_browser():
    opened = AppTest.from_function(page).run()
    assert not opened.exception
    (figure,) = figures(opened)
    assert [(bar["x"], bar["y"]) for bar in figure["data"]] == [(["a"], [1.5])]
    (element,) = opened.get("bidi_component")
    assert b'"alt": "Bars: \\"a\\" alone"' in element.proto.bytes
    assert not element.proto.isolate_styles


def test_the_built_part_of_plotly_has_the_kinds_of_traces_that_pages_have_and_no_others():
    texts = [read(path) for path in source_files() if path.parts[0] == "app"]
    kinds = {kind.lower() for text in texts for kind in re.findall(r"\bgo\.(\w+)", text)} - {"figure", "frame"}
    built = gzip.decompress(chart.PLOTLY.read_bytes()).decode()
    assert kinds == chart.KINDS == {*re.findall(r'moduleType:"trace",name:"(\w+)"', built)}
