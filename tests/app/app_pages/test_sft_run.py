"""A run of supervised fine-tuning on the pages: no rewards and no buffer, but a loss."""

import pytest

from db.connections.opening import open_database
from db.queries.runs import get_run
from exgrpo_core.step_report import StepReport
from jobs.recording.file_recorder import FileRecorder
from jobs.recording.recorder import EvaluationRecord
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import load_preset
from jobs.supervisor.open_index import rebuild_index
from tests.app.form_fields import field
from tests.step_reports import make_questions

RUN_ID = "tuned"


@pytest.fixture
def tuned(runs_root):
    run = RunDirectory.create(runs_root, load_preset("chains-sft"), run_id=RUN_ID)
    attempt = run.claim_attempt()
    recorder = FileRecorder(run, attempt, run.spec().recording)
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    for step in range(1, 25):
        metrics = {"loss/sft": 1.0 / step, "optim/gradient_norm": 0.5, "seconds/step": 0.1}
        recorder.step(StepReport(step, is_replay_open=False, groups=[], metrics=metrics))
    recorder.evaluation(EvaluationRecord(24, "held_out", ["0", "1"], [4, 8], 8, 0.6, 1.0))
    recorder.status(RunStatus.FINISHED)
    recorder.close()
    write_outcome(run.attempt_path(attempt), RunStatus.FINISHED, "")
    rebuild_index(runs_root, None)


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize("view", [None, "Log", "Configuration", "Attempts"])
def test_every_view_of_a_fine_tuned_run_opens(open_page, view):
    page = open_page("run", run=RUN_ID, **({"view": view} if view else {}))
    assert not page.exception
    assert not page.error


@pytest.mark.usefixtures("tuned")
def test_run_shows_its_loss_and_held_out_score(open_page):
    page = open_page("run", run=RUN_ID)
    charts = [chart.proto.spec for chart in page.get("plotly_chart")]
    assert any("of demonstrations (SFT)" in chart for chart in charts)
    assert next(element for element in page.metric if element.label == "Held-out Avg@8").value == "75.0%"


@pytest.mark.usefixtures("tuned")
def test_run_without_rewards_is_not_blamed_for_having_none(runs_root):
    database = open_database(None, runs_root)
    try:
        assert get_run(database, RUN_ID).health == ()
    finally:
        database.close()


@pytest.mark.usefixtures("tuned")
def test_list_of_runs_names_the_method(open_page):
    page = open_page("runs")
    assert not page.exception
    assert "SFT" in str(page.dataframe[0].value.to_dict())


@pytest.mark.parametrize("preset", ["chains-sft", "paper-sft"])
def test_form_starts_from_a_preset_of_fine_tuning_and_keeps_it_one(open_page, preset):
    page = open_page("new_run", preset=preset)
    assert not page.exception
    assert f"exgrpo train --preset {preset}" in [block.value for block in page.code]
    assert field(page, "sft.response_column").value == "target"


@pytest.mark.parametrize("preset", ["chains-sft", "paper-sft"])
def test_form_counts_demonstrations_and_no_rollouts(open_page, preset):
    spec = load_preset(preset)
    page = open_page("new_run", preset=preset)
    [size] = [element.value for element in page.caption if f"{spec.num_steps:,} steps of" in element.value]
    assert f"{spec.algorithm.batch_size} demonstrations each" in size
    assert "rollouts" not in size


@pytest.mark.usefixtures("tuned")
def test_form_starts_from_an_earlier_fine_tuned_run(open_page):
    page = open_page("new_run", **{"from": RUN_ID})
    assert not page.exception
    assert field(page, "sft.response_column").value == "target"


@pytest.mark.usefixtures("tuned")
def test_costs_of_a_fine_tuned_run_are_not_those_of_an_on_policy_one(open_page):
    page = open_page("paper", figure="overhead", beside="Chosen runs", runs=RUN_ID)
    costs = next(frame.value for frame in page.dataframe if "Overhead" in frame.value.columns)
    assert list(costs["Method"]) == ["SFT"]
    assert costs["Fresh rollouts"].isna()[0]
    assert costs["Fresh questions"].isna()[0]
