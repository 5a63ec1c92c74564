"""A run of supervised fine-tuning on the pages: no rewards and no buffer, but a loss."""

import pytest

from exgrpo.app.queries.answers import ask
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.execution.supervisor.indexing import rebuild_index
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from tests.app.charts import figures
from tests.app.page_texts import field, has_text, tables
from tests.step_reports import make_questions

pytestmark = pytest.mark.slow

RUN_ID = "tuned"


@pytest.fixture(scope="module")
def tuned_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("tuned")
    run = RunDirectory.create(root, load_preset("chains-sft"), run_id=RUN_ID)
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
    rebuild_index(root, None)
    return root


@pytest.fixture(autouse=True)
def tuned_shared(tuned_root, share):
    share(tuned_root)


def test_run_shows_its_loss_and_held_out_score_and_is_not_blamed_for_having_no_rewards(open_page):
    page = open_page("run", run=RUN_ID)
    assert "of demonstrations (SFT)" in str(figures(page))
    tiles = {element.label: element.value for element in page.metric}
    assert tiles == {
        "Time taken": tiles["Time taken"], "SFT loss": "0.0417", "Gradient norm": "0.5", "Held-out Avg@8": "75.0%",
    }  # fmt: skip
    assert ask(get_run, RUN_ID).health == ()
    assert list(tables(open_page("runs"))[0].value["Method"]) == ["SFT"]
    for view in ("Log", "Configuration", "Buffer"):
        page = open_page("run", run=RUN_ID, view=view)
        assert not page.error
        assert has_text(page, "learns from demonstrations") is (view == "Buffer")


@pytest.mark.parametrize("preset", ["chains-sft", "paper-sft"])
def test_form_starts_from_a_preset_of_fine_tuning_and_counts_demonstrations(open_page, preset):
    spec = load_preset(preset)
    page = open_page("new_run", preset=preset)
    assert f"exgrpo train --preset {preset}" in [block.value for block in page.code]
    assert field(page, "sft.response_column").value == "target"
    [size] = [element.value for element in page.caption if f"{spec.num_steps:,} steps of" in element.value]
    assert f"{spec.algorithm.batch_size} demonstrations each" in size
    assert "rollouts" not in size


def test_costs_of_a_fine_tuned_run_are_not_those_of_an_on_policy_one(open_page):
    page = open_page("methods", view="Paper", figure="overhead", beside="Chosen runs", runs=RUN_ID)
    costs = next(frame.value for frame in tables(page) if "Overhead" in frame.value.columns)
    assert list(costs["Method"]) == ["SFT"]
    assert costs[["Fresh rollouts", "Fresh questions"]].isna().all(axis=None)
