import re
from dataclasses import replace

import pytest

from tests.app import recorded
from tests.app.charts import figures
from tests.app.page_texts import has_text, tables

pytestmark = pytest.mark.slow


def frame(page, column):
    return next(element.value for element in tables(page) if column in element.value.columns)


def test_seeds_become_one_curve_with_mean_and_interval(runs_root, open_page):
    pair = [
        recorded.RecordedRun("run-one", "exgrpo seed 1", "finished", 10),
        recorded.RecordedRun("run-two", "exgrpo seed 2", "finished", 20),
    ]
    recorded.record(runs_root, *pair, recorded.ON_POLICY)
    page = open_page("compare", runs="run-one,run-two,run-on-policy", by="Mean over seeds")
    results = frame(page, "Seeds")
    assert list(results["Runs of"]) == ["exgrpo", "on-policy whole"]
    assert list(results["Seeds"]) == [2, 1]
    assert results["Steps"][0] == 15
    assert re.fullmatch(r"[\d.]+ to [\d.]+", results["Fresh Pass@1, 95% over seeds"][0])
    assert list(results["Fresh Pass@1, 95% over seeds"].isna()) == [False, True]


def test_every_table_tells_runs_of_one_name_apart(runs_root, open_page):
    recorded.record(runs_root, *(replace(recorded.FINISHED, run_id=run_id) for run_id in ("run-a1", "run-b2")))
    page = open_page("compare", runs="run-a1,run-b2")
    wanted = ["exgrpo whole (a1)", "exgrpo whole (b2)"]
    assert [list(element.value["Run"]) for element in tables(page) if "Run" in element.value] == [wanted, wanted]


@pytest.mark.usefixtures("recorded_shared")
def test_runs_and_metrics_are_chosen_and_what_is_not_there_is_named_and_left_out(open_page):
    page = open_page("compare", runs="run-finished,run-running,../etc")
    assert has_text(page, "../etc")
    assert len(frame(page, "Steps")) == 2
    page.multiselect(key="choose-metrics").set_value(["replay/age_mean"]).run()
    assert len(figures(page)) == 9
    page.multiselect(key="runs-choice").set_value(["run-finished", "run-failed"]).run()
    assert page.query_params["runs"] == "run-finished,run-failed"
    assert list(frame(page, "Steps")["Run"]) == ["exgrpo whole", "too fast"]
    assert has_text(page, "have the same settings")
