import json

import pytest

from app import theme
from app.formats import literal
from tests.app import recorded, scored
from tests.app.page_texts import has_text, texts


def frame(page, column):
    return next(element.value for element in page.dataframe if column in element.value.columns)


def test_page_without_runs_says_how_to_choose(open_page):
    page = open_page("compare")
    assert not page.exception
    assert "Choose two runs or more" in texts(page)


@pytest.mark.usefixtures("recorded_runs")
def test_two_finished_runs_have_curves_scores_and_differences(open_page):
    page = open_page("compare", runs="run-finished,run-on-policy")
    assert not page.exception
    assert len(page.get("plotly_chart")) == 8
    scores = frame(page, "Steps")
    assert list(scores["Run"]) == ["exgrpo whole", "on-policy whole"]
    assert list(scores["Method"]) == ["ExGRPO", "Dr.GRPO"]
    assert round(scores["Gain"][0], 1) == 18.8
    assert "algorithm.experience_ratio" in set(frame(page, "Field")["Field"])
    assert page.multiselect(key="runs-choice").value == ["run-finished", "run-on-policy"]


@pytest.mark.usefixtures("recorded_runs")
def test_costs_of_replay_are_shown_beside_the_on_policy_run_of_the_same_backbone(open_page):
    costs = frame(open_page("compare", runs="run-finished,run-on-policy"), "Avg. step, s")
    assert list(costs["Method"]) == ["ExGRPO", "On-policy"]
    assert list(costs["Avg. step, s"]) == [0.25, 0.25]
    assert costs["Files, MB"][0] == 2.0
    assert costs["Files, MB"].isna()[1]
    assert list(costs["Fresh rollouts"]) == [256.0 * 30] * 2
    assert costs["Fresh questions"][0] == 16 - 8.0
    assert costs["Of on-policy"][1] == 100.0 * 256 / (16 * 8)
    assert costs["Overhead"][0] == "+0.0% / +0.0% / +0.0%"
    assert costs["Overhead"].isna()[1]


@pytest.mark.usefixtures("recorded_runs")
def test_pickers_have_no_entry_that_adds_everything_typed(open_page):
    page = open_page("compare", runs="run-finished,run-on-policy")
    assert not any(picker.proto.select_all for picker in page.multiselect)


@pytest.mark.parametrize("axis", ["Fresh rollouts", "Generated tokens", "Training time"])
@pytest.mark.usefixtures("recorded_runs")
def test_curves_are_drawn_against_each_axis(open_page, axis):
    page = open_page("compare", runs="run-finished,run-running", x=axis)
    assert not page.exception
    title = json.loads(page.get("plotly_chart")[0].proto.spec)["layout"]["xaxis"]["title"]["text"]
    assert title != "step"
    assert page.query_params["x"] == axis


@pytest.mark.usefixtures("recorded_runs")
def test_running_and_failed_runs_are_compared_as_far_as_they_are(open_page):
    page = open_page("compare", runs="run-running,run-failed,run-queued")
    assert not page.exception
    assert list(frame(page, "Steps")["Steps"]) == [18, 11, 0]
    assert list(frame(page, "Steps")["State"]) == ["running", "failed", "queued"]


def test_seeds_become_one_curve_with_mean_and_deviation(runs_root, open_page):
    pair = [
        recorded.RecordedRun("run-one", "exgrpo seed 1", "finished", 10),
        recorded.RecordedRun("run-two", "exgrpo seed 2", "finished", 20),
    ]
    recorded.record(runs_root, *pair, recorded.ON_POLICY)
    page = open_page("compare", runs="run-one,run-two,run-on-policy", by="Mean over seeds")
    assert not page.exception
    results = frame(page, "Seeds")
    assert list(results["Runs of"]) == ["exgrpo", "on-policy whole"]
    assert list(results["Seeds"]) == [2, 1]
    assert results["Steps"][0] == 15
    assert results["Pass@1 of fresh questions, deviation"][0] > 0


@pytest.mark.usefixtures("recorded_runs")
def test_more_metrics_come_on_request(open_page):
    page = open_page("compare", runs="run-finished,run-running")
    page.multiselect(key="choose-metrics").set_value(["replay/age_mean"]).run()
    assert not page.exception
    assert len(page.get("plotly_chart")) == 9


@pytest.mark.usefixtures("recorded_runs")
def test_choice_is_written_into_the_address(open_page):
    page = open_page("compare", runs="run-finished,run-running")
    page.multiselect(key="runs-choice").set_value(["run-finished", "run-failed"]).run()
    assert not page.exception
    assert page.query_params["runs"] == "run-finished,run-failed"
    assert list(frame(page, "Steps")["Run"]) == ["exgrpo whole", "too fast"]


@pytest.mark.usefixtures("recorded_runs")
def test_runs_that_are_not_there_are_named_and_left_out(open_page):
    page = open_page("compare", runs="run-finished,run-running,../etc")
    assert not page.exception
    assert any("../etc" in text for text in texts(page))
    assert len(frame(page, "Steps")) == 2


@pytest.mark.usefixtures("recorded_runs")
def test_hostile_name_reaches_no_markup(open_page):
    page = open_page("compare", runs="run-finished,run-hostile")
    assert not page.exception
    legend = next(element.proto.body for element in page.get("html") if "border-top" in element.proto.body)
    assert "<img" not in legend
    assert page.button(key="legend-1").label.startswith(literal("<img src=x"))


@pytest.mark.usefixtures("recorded_runs")
def test_runs_of_equal_settings_are_said_to_be(open_page):
    page = open_page("compare", runs="run-finished,run-failed")
    assert any("have the same settings" in text for text in texts(page))


def test_scores_of_the_runs_checkpoints_are_drawn_over_the_number_of_answers(runs_root, open_page):
    scored.record_all(runs_root)
    recorded.record(runs_root, recorded.ON_POLICY)
    runs = "run-finished,run-on-policy"
    assert has_text(open_page("compare", runs=runs), "Benchmarks over the number of answers")
    page = open_page("compare", runs=runs, curves="true", of="math500")
    assert not page.exception
    over_k = [
        chart
        for chart in map(json.loads, (element.proto.spec for element in page.get("plotly_chart")))
        if chart["layout"]["xaxis"]["title"].get("text") == "k"
    ]
    assert len(over_k) == 3
    colours = {trace["name"]: trace["line"].get("color") for trace in over_k[0]["data"] if "showlegend" not in trace}
    assert list(colours.values()) == [theme.look_of_run(index).colour for index in range(len(colours))]
    assert any("step 30" in trace["name"] for trace in over_k[0]["data"])
