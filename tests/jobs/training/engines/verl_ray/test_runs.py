import json
import shutil
import sys

import numpy as np
import pytest

from exgrpo.jobs.actions.evaluations import plan_evaluation
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.replay.facts import Outcome
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from tests.jobs.training.engines.verl_ray.runs import (
    NUM_STEPS,
    draws_of,
    new_run,
    run_content,
    start_worker,
    steps_of,
    wait_for,
    wait_for_log,
    work,
)
from tests.verl_on_cpu import GENERATOR_VARIABLE, STUCK

CHAINS = ("a+3", "a*2b-1", "a-4")
SHORTNESS = "tests.jobs.training.outside_rewards:shortness"

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def experiential(tmp_path_factory) -> RunDirectory:
    run = new_run(tmp_path_factory.mktemp("runs"), recording={"token_data": "all"})
    assert work(run) == "finished"
    return run


@pytest.mark.whole
def test_run_passes_the_delayed_start_fills_the_buffer_replays_and_retires(experiential):
    steps = steps_of(experiential)
    assert sorted(steps) == list(range(1, NUM_STEPS + 1))
    assert not steps[1]["is_replay_open"]
    assert steps[NUM_STEPS]["is_replay_open"]
    metrics = [steps[step]["metrics"] for step in sorted(steps)]
    assert metrics[0]["replay/num_replayed"] == 0
    assert metrics[-1]["replay/num_replayed"] == 2
    assert metrics[-1]["buffer/num_questions"] > 0
    assert metrics[-1]["buffer/num_retired"] > 0
    assert all(metric["generator/log_prob_gap"] < 1e-4 for metric in metrics)
    assert all(item["ratio/replayed_mean"] > 0.0 for item in metrics if item["replay/num_replayed"])


def test_no_step_that_is_executed_again_differs_from_the_record(experiential):
    root, steps = experiential.path.parent, range(1, NUM_STEPS + 1)
    with open_fresh_index(root, None) as database:
        rows = [row for step in steps for row in replay_step(database, root, experiential.run_id, step)]
    assert [row for row in rows if row.outcome is Outcome.DIFFERS] == []
    for compared in ("loss/policy", "generator/log_prob_gap"):
        assert [row.outcome for row in rows if row.compared == compared] == [Outcome.SAME] * NUM_STEPS


def test_run_that_lost_its_newest_checkpoint_goes_on_from_the_one_before_with_the_same_draws(experiential, tmp_path):
    run = new_run(tmp_path)
    for name in ("buffer", "checkpoints/step-00000008"):
        shutil.copytree(experiential.path / name, run.path / name, dirs_exist_ok=True)
    assert work(run) == "finished"
    expected, found = steps_of(experiential), steps_of(run)
    assert sorted(found) == list(range(9, NUM_STEPS + 1))
    for step in found:
        assert draws_of(found[step]) == draws_of(expected[step]), f"step {step}"


def test_evaluation_of_a_checkpoint_merges_its_shards_first(experiential, tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, sys.executable)
    file, runs_root = tmp_path / "chains.jsonl", experiential.path.parent
    # AIME24 has 30 questions, whose answers are whole numbers as those of chains are.
    rows = [{"problem": f"Q{start}{operations}:", "answer": "7"} for start in range(10) for operations in CHAINS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = {
        "benchmarks": [{"name": "aime24", "source": str(file), "num_questions": 4, "samples_per_question": 2}],
        "template": "none",
        "max_response_tokens": 16,
    }
    spec = plan_evaluation(runs_root, f"{experiential.run_id}@last", asked, "test")
    evaluation = RunDirectory.open(runs_root, queue_job(runs_root, spec))
    assert (evaluation.path / "shards").is_dir()
    assert work(evaluation) == "finished"
    assert (evaluation.path / "model" / "model.safetensors").is_file()
    [scores] = [event for event in EventReader(evaluation).read(max_steps=1).events if event["kind"] == "benchmark"]
    assert {len(counts) for counts in scores["num_correct"].values()} == {4}
    assert spec.model.step == NUM_STEPS


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> RunDirectory:
    """A run whose rewards have parts, stopped while the weights of its first step were exchanged."""
    algorithm = run_content(experience_ratio=0.0)["algorithm"] | {"reward_kind": "continuous", "start_pass_rate": None}
    data = run_content()["data"] | {"rewards": {"answer": 1.0, SHORTNESS: 2.0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ALLOWED_CODE_VARIABLE, SHORTNESS.partition(":")[0])
        patch.setenv(GENERATOR_VARIABLE, "hf-stuck")
        run = new_run(tmp_path_factory.mktemp("runs"), data=data, algorithm=algorithm, num_steps=2)
        process, mark = start_worker(run)
        wait_for_log(process, run, STUCK)
        run.request_stop()
        wait_for(process, mark)
    return run


def test_a_stop_is_heard_while_weights_are_exchanged(stopped):
    assert read_outcome(stopped.attempt_path(1)).status == "stopped"
    assert "Stopped while weights were sent to the servers." in stopped.log_path.read_text()


def test_a_run_is_rewarded_by_parts_and_a_users_code(stopped):
    [step] = steps_of(stopped).values()
    metrics = step["metrics"]
    assert 0.0 < metrics["reward/code_1"] <= 1.0
    assert metrics["reward/failed"] == 0.0
    assert metrics["reward/answer"] <= 1.0
    lengths = [row["extra"][f"reward/{SHORTNESS}"] for row in step["trajectories"]]
    assert np.mean(lengths) == pytest.approx(metrics["reward/code_1"])
