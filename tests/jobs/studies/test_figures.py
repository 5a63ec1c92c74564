import math
from xml.etree.ElementTree import fromstring, tostring

import pytest

from jobs.studies.figures import Axis, Panel, curve_panels, interval_figure
from jobs.studies.intervals import MeanInterval, mean_interval
from jobs.studies.markup import element


def test_an_axis_has_round_ticks_inside_it():
    assert Axis(0.0, 1.0, 0, 100).ticks() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Axis(88.2, 93.4, 0, 100).ticks() == [90.0, 92.0]


def test_a_value_stands_where_the_axis_puts_it():
    axis = Axis(10.0, 20.0, 100.0, 200.0)
    assert [axis.place(value) for value in (10.0, 15.0, 20.0)] == [100.0, 150.0, 200.0]


def test_each_seed_is_a_dot_and_the_interval_spans_its_half_both_ways():
    figure = interval_figure([("a <cell>", mean_interval([1.0, 2.0, 3.0]))], baseline=2.0)
    assert len([node for node in figure if node.get("class") == "seed"]) == 3
    (span,) = [node for node in figure if node.get("class") == "range"]
    (dot,) = [node for node in figure if node.get("class") == "mean"]
    middle = (float(span.get("x1")) + float(span.get("x2"))) / 2
    assert middle == pytest.approx(float(dot.get("cx")), abs=0.01)
    assert fromstring(tostring(figure)).tag == "svg"


def test_one_seed_with_one_value_still_makes_a_figure():
    figure = interval_figure([("a", MeanInterval(5.0, math.nan, (5.0,)))], baseline=None)
    assert "nan" not in tostring(figure, encoding="unicode")


def test_panels_draw_seeds_their_mean_and_the_baseline():
    curve = {0: 1.0, 10: 2.0}
    figure = curve_panels([Panel("a", [curve, curve], curve), Panel("b", [curve], curve)], baseline=curve)
    classes = [node.get("class") for node in figure if node.tag == "polyline"]
    assert sorted(classes) == ["base", "base", "curve", "curve", "thin", "thin", "thin"]


def test_text_after_an_element_stays_after_it():
    node = element("p", "a", element("b", "c"), "<d>", class_="x", text_anchor="end")
    assert tostring(node, encoding="unicode") == '<p class="x" text-anchor="end">a<b>c</b>&lt;d&gt;</p>'
