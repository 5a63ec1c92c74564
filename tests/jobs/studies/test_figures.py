import math

from jobs.studies.figures import BASELINE, MEAN, Panel, curve_panels, interval_figure
from jobs.studies.intervals import MeanInterval, mean_interval


def test_each_seed_is_a_dot_and_the_interval_spans_its_half_both_ways():
    interval = mean_interval([1.0, 2.0, 4.0])
    figure = interval_figure([("a", interval), ("b", mean_interval([3.0, 5.0]))], baseline=2.0)
    seeds, means = figure.data
    assert (seeds.x, seeds.y) == ((1.0, 2.0, 4.0, 3.0, 5.0), ("a", "a", "a", "b", "b"))
    assert (means.x[0], means.error_x.array[0]) == (interval.mean, interval.half)
    assert seeds.marker.size < means.marker.size
    (line,) = figure.layout.shapes
    assert (line.x0, line.x1, line.line.dash) == (2.0, 2.0, "dash")


def test_one_seed_has_a_mean_without_an_interval():
    figure = interval_figure([("a", MeanInterval(5.0, math.nan, (5.0,)))], baseline=None)
    assert figure.data[1].error_x.array == (None,)
    assert not figure.layout.shapes


def test_panels_draw_seeds_their_mean_and_the_baseline_by_step():
    curve = {10: 2.0, 0: 1.0}
    figure = curve_panels([Panel("a", [curve, curve], curve), Panel("b", [curve], curve)], baseline=curve)
    assert [trace.name for trace in figure.data] == ["seed", "seed", "baseline", "mean", "seed", "baseline", "mean"]
    assert {trace.x for trace in figure.data} == {(0, 10)}
    assert {trace.line.color for trace in figure.data if trace.name == "mean"} == {MEAN}
    assert {trace.line.dash for trace in figure.data if trace.line.color == BASELINE} == {None, "dash"}
    assert [title.text for title in figure.layout.annotations] == ["a", "b"]


def test_panels_share_one_scale_and_are_four_in_a_row():
    figure = curve_panels([Panel(str(number), [{0: 1.0}], {0: 1.0}) for number in range(5)], baseline={})
    axes = list(figure.select_yaxes())
    assert len(axes) == 5
    assert [axis.matches for axis in axes] == [None, "y", "y", "y", "y"]
    tops = [axis.domain[1] for axis in axes]
    assert tops[4] < tops[0] == tops[1] == tops[2] == tops[3]
