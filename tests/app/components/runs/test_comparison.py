import numpy as np
import pytest

from app.components.runs import comparison
from app.components.runs.comparison import Group
from app.components.widgets.curve_view import Line, aligned, cut, paired, smoothed
from db.rows.runs import MetricPoint

pytestmark = pytest.mark.slow


def points(*pairs):
    return [MetricPoint(step, value) for step, value in pairs]


def spec(rate=1e-4, seed=0, **fields):
    return {"kind": "train", "name": f"run {seed}", "optim": {"learning_rate": rate}, "seed": seed, **fields}


def test_runs_whose_settings_differ_by_seed_only_are_one_group():
    names = {"a": "exgrpo seed 0", "b": "exgrpo seed 1", "c": "other"}
    specs = {"a": spec(seed=0, algorithm={"seed": 1}), "b": spec(seed=1, algorithm={"seed": 2}), "c": spec(2e-4)}
    specs["c"]["algorithm"] = {"seed": 1}
    assert comparison.groups(names, specs) == [Group("exgrpo", ("a", "b")), Group("other", ("c",))]


def test_only_settings_that_differ_are_listed_and_those_that_cannot_be_read_are_in_no_group():
    settings = comparison.differing({"a": spec(1e-4, 0), "b": spec(2e-4, 0)})
    assert settings == {"optim.learning_rate": {"a": 1e-4, "b": 2e-4}}
    specs = {key: {"kind": "train", "is_unreadable": True} for key in ("a", "b")}
    assert comparison.differing(specs | {"c": {"kind": "train"}}) == {}
    names = [group.name for group in comparison.groups({"a": "run", "b": "run"}, specs)]
    assert names == ["run (1)", "run (2)"]


def test_groups_of_one_name_are_told_apart_by_their_settings_and_seeds_by_nothing():
    names = {f"run-8{end}": f"chains (8{end})" for end in "abcd"}
    specs = dict(zip(names, (spec(1e-4, 0), spec(1e-4, 1), spec(5e-5, 0), spec(5e-5, 1)), strict=True))
    found = comparison.groups(names, specs)
    assert [group.name for group in found] == ["chains (learning_rate 0.0001)", "chains (learning_rate 5e-05)"]
    assert [len(group.run_ids) for group in found] == [2, 2]


def test_curve_is_placed_by_what_the_axis_says_of_its_steps():
    line = aligned(points((1, 0.5), (2, 0.6), (4, 0.8)), points((2, 100.0), (4, 300.0)))
    assert line.x.tolist() == [50.0, 100.0, 300.0]
    np.testing.assert_allclose(line.y, [0.5, 0.6, 0.8], rtol=1e-6)
    assert aligned(points((3, 1.0)), None).x.tolist() == [3.0]
    unplaced = aligned(points((3, 1.0)), [])
    assert (unplaced.x.tolist(), unplaced.y.tolist(), comparison.mean_line([unplaced])) == ([], [], None)


def test_mean_goes_as_far_as_all_runs_do_and_holds_their_range():
    one = Line(np.array([1, 2, 3], np.float32), np.array([0, 2, 4], np.float32))
    two = Line(np.array([1, 3, 5], np.float32), np.array([2, 6, 9], np.float32))
    mean = comparison.mean_line([one, two])
    assert mean.x.tolist() == [1, 2, 3]
    assert mean.y.tolist() == [1, 3, 5]
    assert (mean.low.tolist(), mean.high.tolist()) == ([0, 2, 4], [2, 4, 6])
    assert comparison.mean_line([]) is None
    assert comparison.mean_line([one]) is one


def test_a_mean_over_runs_has_an_interval_and_leaves_out_what_is_not_there():
    assert comparison.mean_over([1.0, 3.0, None]) == (2.0, pytest.approx(12.706205))
    assert comparison.mean_over([1.0]) == (1.0, None)
    assert comparison.mean_over([None, float("nan")]) == (None, None)


def test_smoothing_starts_at_the_first_value_and_leaves_out_what_is_not_finite():
    line = Line(np.array([1, 2, 3, 4], np.float32), np.array([1, np.nan, 3, 3], np.float32))
    # By hand: sums 0.5, 0.25 + 1.5 and 0.125 + 0.75 + 1.5 over weights 0.5, 0.75 and 0.875.
    smooth = smoothed(line, 0.5).y
    assert smooth[0] == 1.0
    assert np.isnan(smooth[1])
    assert smooth[2:].tolist() == pytest.approx([1.75 / 0.75, 2.375 / 0.875])
    assert smoothed(line, 0.0) is line


def test_a_window_keeps_one_point_at_each_side_and_a_metric_over_another_the_steps_of_both():
    line = Line(np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32) * 10)
    assert cut(line, (1.5, 3.0)).x.tolist() == [1, 2, 3, 4]
    assert cut(line, None) is line
    line = paired(points((1, 0.5), (2, 0.6), (3, 0.7)), points((2, 20.0), (3, 30.0), (4, 40.0)))
    assert (line.x.tolist(), line.y.tolist()) == ([20.0, 30.0], pytest.approx([0.6, 0.7]))


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([{"seed": 0, "lr": 3}, {"seed": 1, "lr": 3}], [("a", "b")]),
        ([{"seed": 0, "lr": 3}, {"seed": 1, "lr": 4}], [("a",), ("b",)]),
        ([{"trainer": {"seed": 0}}, {"trainer": {"seed": 1}}], [("a", "b")]),
        ([{"random_seed": 0}, {"random_seed": 1}], [("a", "b")]),
        ([{"Seed": 0}, {"Seed": 1}], [("a", "b")]),
        ([{"seeds": 0}, {"seeds": 1}], [("a",), ("b",)]),
        ([{"seedling": 0}, {"seedling": 1}], [("a",), ("b",)]),
    ],
)
def test_recorded_runs_are_grouped_by_all_settings_but_their_seeds(configs, expected):
    specs = {key: {"kind": "recorded", "config": config} for key, config in zip("ab", configs, strict=True)}
    found = comparison.groups({"a": "one", "b": "two"}, specs)
    assert [group.run_ids for group in found] == expected
    sentences = comparison.describe_ends(found, {"a": 9, "b": 9})
    assert bool(sentences) == (len(expected) == 2)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"a": 9, "b": 19, "c": 39}, "at steps 9, 19 and 39. The mean ends at 9;"),
        ({"a": 5, "b": 5, "c": 6}, "at steps 5, 5 and 6. The mean ends at 5;"),
        ({"a": 1000, "b": 2000, "c": 1000}, "at steps 1,000, 1,000 and 2,000. The mean ends at 1,000;"),
        ({"a": 7, "b": 7, "c": 7}, None),
        ({"a": 0, "b": 0, "c": 1}, "at steps 0, 0 and 1. The mean ends at 0;"),
    ],
)
def test_a_mean_over_runs_of_different_length_says_where_it_ends(steps, said):
    sentences = comparison.describe_ends([Group("g", ("a", "b", "c"))], steps)
    assert [sentence for sentence in sentences if said and said in sentence] == sentences
    assert len(sentences) == (said is not None)
