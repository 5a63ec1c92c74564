import numpy as np
import pytest

from exgrpo.app import theme
from exgrpo.app.components.runs import comparison, comparison_tables
from exgrpo.app.components.runs.comparison import Group
from exgrpo.app.components.widgets import figures
from exgrpo.app.components.widgets.curve_view import CurveView, Line, aligned, cut, paired, smoothed
from exgrpo.app.queries.runs import Axis
from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.runs import get_run
from exgrpo.db.rows.runs import MetricPoint
from exgrpo.jobs.specs.train import TrainSpec
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

pytestmark = pytest.mark.slow


def points(*pairs):
    return [MetricPoint(step, value) for step, value in pairs]


def spec(rate=1e-4, seed=0, **fields):
    return {"kind": "train", "name": f"run {seed}", "optim": {"learning_rate": rate}, "seed": seed, **fields}


def test_runs_whose_settings_differ_by_seed_only_are_one_group():
    names = {"a": "exgrpo seed 0", "b": "exgrpo seed 1", "c": "other"}
    rates = {"a": 1e-4, "b": 1e-4, "c": 2e-4}
    specs = {
        name: spec(rate, seed, algorithm={"seed": seed}, model={"warm_seed": seed})
        for seed, (name, rate) in enumerate(rates.items())
    }
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
    assert [group.name for group in found] == ["chains (Learning rate 0.0001)", "chains (Learning rate 5e-05)"]
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


@pytest.mark.parametrize(("branched_from", "axis", "num_before"), [(2, "steps", 2), (9, "steps", 4), (2, "clock", 2)])
def test_what_a_branch_has_of_its_parent_is_drawn_faint_before_its_own_steps(branched_from, axis, num_before):
    after = points((1, 60.0), (2, 120.0), (3, 180.0), (5, 300.0))
    view = CurveView(Axis(axis), axis_points=after if axis == "clock" else None, branched_from=branched_from)
    line = view.line(points((1, 0.1), (2, 0.2), (3, 0.3), (5, 0.5)))
    assert line.num_before == num_before
    figure = figures.new_figure()
    figures.add_line(figure, "score", line, theme.look_of_run(0), view)
    drawn = [(trace.opacity, trace.x.tolist()) for trace in figure.data]
    x = [1, 2, 3, 5]
    assert drawn == [(0.3, x[:num_before]), (None, x[num_before:])]
    assert cut(line, (1.5, 2.0)).num_before == min(num_before, 3)


def test_a_mean_over_branches_is_of_their_own_steps():
    views = [CurveView(branched_from=step) for step in (1, 2)]
    values = points((1, 0.0), (2, 2.0), (3, 4.0))
    mean = comparison.mean_line([view.line(values) for view in views])
    assert (mean.x.tolist(), mean.y.tolist()) == ([3], [4])
    assert comparison.mean_line([CurveView(branched_from=3).line(values), views[0].line(values)]) is None


def test_the_costs_of_a_branch_are_of_its_own_steps(tmp_path, monkeypatch):
    database = open_database(None, tmp_path)
    monkeypatch.setattr(comparison_tables, "ask", lambda query, *given, **named: query(database, *given, **named))

    def change(report):
        # Half of the questions replay eight trajectories each.
        report.metrics |= {
            "seconds/step": 2.0, "rollouts/fresh_total": 30.0 * report.step, "replay/share": 0.5,
            "replay/num_replayed": 4.0 * TrainSpec().algorithm.batch_size,
        }  # fmt: skip

    parent = new_run(tmp_path, run_id="parent")
    record_attempt(parent, range(1, 7), change=change)
    child = new_run(tmp_path, run_id="child", parent_run_id="parent", branched_from_step=4)
    record_attempt(child, range(5, 10), change=change)
    orphan = new_run(tmp_path, run_id="orphan", parent_run_id="deleted", branched_from_step=4)
    record_attempt(orphan, range(5, 10), change=change)
    for run in (parent, child, orphan):
        ingest_run(database, run)
    costs = {name: comparison_tables.costs(get_run(database, name), name) for name in ("parent", "child", "orphan")}
    database.close()
    # 30 a step: 6 steps, and steps 5 to 9; of the parent that is not there nothing is known.
    assert {name: row["Fresh rollouts"] for name, row in costs.items()} == {"parent": 180, "child": 150, "orphan": None}
    assert costs["child"]["Per step"] == 30.0
    assert costs["child"]["Fresh questions"] == TrainSpec().algorithm.batch_size / 2
    assert costs["child"]["Of on-policy"] == pytest.approx(100 * 30 / (TrainSpec().algorithm.batch_size * 8))


def test_a_mean_over_runs_has_an_interval_and_leaves_out_what_is_not_there():
    interval = comparison.mean_over([1.0, 3.0, None])
    assert interval[:2] == (2.0, pytest.approx(12.706205))
    assert interval.ends() == pytest.approx((-10.706205, 14.706205))
    assert interval._replace(bounds=(0.0, 10.0)).ends() == (0.0, 10.0)
    assert np.isnan(comparison.mean_over([1.0]).ends()).all()
    assert comparison.mean_over([None, float("nan")]) is None


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
        ({"a": 1000, "b": 2000, "c": 1000}, "at steps 1,000, 1,000 and 2,000. The mean ends at 1,000;"),
        ({"a": 7, "b": 7, "c": 7}, None),
        ({"a": 0, "b": 0, "c": 1}, "at steps 0, 0 and 1. The mean ends at 0;"),
    ],
)
def test_a_mean_over_runs_of_different_length_says_where_it_ends(steps, said):
    sentences = comparison.describe_ends([Group("g", ("a", "b", "c"))], steps)
    assert [sentence for sentence in sentences if said and said in sentence] == sentences
    assert len(sentences) == (said is not None)
