from pathlib import Path

import pytest

from jobs.actions.evaluations import plan_evaluation_after
from jobs.runs.checkpoints import save_checkpoint
from jobs.runs.control import TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.train import ModelSpec, TrainSpec
from jobs.worker.predecessor_model import with_predecessor_model


@pytest.fixture
def first(tmp_path):
    """A run with one checkpoint, at its last step."""
    run = RunDirectory.create(tmp_path, TrainSpec(num_steps=4))

    def write(checkpoint):
        checkpoint.policy.mkdir()
        (checkpoint.policy / "config.json").write_text("{}")
        (checkpoint.policy / "optimizer.safetensors").write_text("large")

    save_checkpoint(run.checkpoints_path, 4, write)
    return run


def waiting_run(first, step="last"):
    spec = TrainSpec(model=ModelSpec(source=f"{first.run_id}@{step}"), waits_for=first.run_id)
    return spec, RunDirectory.create(first.path.parent, spec, run_id="waiting")


def test_waiting_run_starts_from_the_last_checkpoint_of_its_predecessor_whatever_becomes_of_that(first):
    spec, run = waiting_run(first)
    for _attempt in range(2):
        source = Path(with_predecessor_model(spec, run).model.source)
        assert source.is_relative_to(run.path)
        assert [path.name for path in source.iterdir()] == ["config.json"]
    assert not list(source.parent.glob(".*"))


def test_missing_checkpoint_is_one_sentence(first):
    spec, run = waiting_run(first, step="3")
    with pytest.raises(TrainingError, match="at step 3 cannot be used: it is not there"):
        with_predecessor_model(spec, run)


def test_waiting_evaluation_scores_the_last_step_and_keeps_its_model(first):
    spec = plan_evaluation_after(first, {"benchmarks": [{"name": "math500"}]}, "test")
    assert (spec.model.step, spec.model.run_id, spec.waits_for) == (4, first.run_id, first.run_id)
    run = RunDirectory.create(first.path.parent, spec, run_id="scores")
    for _attempt in range(2):
        assert with_predecessor_model(spec, run) == spec
    assert (run.path / "model" / "config.json").is_file()
