from xml.etree import ElementTree

import pytest

from app.components.paper import method_overview
from app.components.paper.entries import ENTRIES
from app.components.paper.printed_figures import picture
from app.theme import DARK, LIGHT
from db.rows.runs import MetricPoint

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"


def elements(svg, name):
    return ElementTree.fromstring(svg).findall(f"{SVG}{name}")


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_entry_but_texts_has_a_picture_without_any_run(colours):
    drawn = {entry.key: picture(entry, {}, colours) for entry in ENTRIES}
    assert {key for key, svg in drawn.items() if not svg} == {"settings", "code-rules", "cases"}
    for key, svg in drawn.items():
        assert not svg or len(ElementTree.fromstring(svg)) > 1, key


def test_bars_grow_with_their_values_and_those_of_exgrpo_stand_out():
    low, high = elements(method_overview.bars([45.3, 48.3], [False, True], LIGHT), "rect")
    assert float(low.get("height")) < float(high.get("height"))
    assert high.get("fill") == LIGHT.replay
    assert low.get("fill") != LIGHT.replay
    assert 'alt="a &quot;b&quot;"' in method_overview.as_image("<svg/>", 'a "b"')


def test_curves_fill_the_picture_and_numbers_that_are_not_finite_are_left_out():
    curve = [MetricPoint(1, 0.0), MetricPoint(2, float("nan")), MetricPoint(3, 1.0)]
    [line] = elements(method_overview.lines([curve], LIGHT), "polyline")
    (left, bottom), (right, top) = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert left < right
    assert bottom > top
