import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.preflight.dry_run import plan_run
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.checkpoints import checkpoint_path, kept_start, prune_checkpoints, save_checkpoint
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import find_checkpoint, starting_checkpoint
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec


def write_model(checkpoint):
    checkpoint.policy.mkdir()
    (checkpoint.policy / "config.json").write_text("{}")
    (checkpoint.policy / "optimizer.safetensors").write_bytes(b"moments")


def write_shards(checkpoint):
    checkpoint.policy.mkdir()
    (checkpoint.policy / "model_world_size_1_rank_0.pt").write_bytes(b"shard")


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory.open(tmp_path, queue_job(tmp_path, TrainSpec(name="mine")))
    save_checkpoint(run.checkpoints_path, 5, write_model)
    save_checkpoint(run.checkpoints_path, 10, write_shards)
    return run


def from_checkpoint(target: str) -> TrainSpec:
    return TrainSpec(model=ModelSpec(source=target))


@pytest.mark.slow
def test_dry_run_shows_the_checkpoint_that_is_named_and_writes_nothing(run):
    runs_root = run.path.parent
    folder = checkpoint_path(run.checkpoints_path, 5) / "policy"
    assert plan_run(from_checkpoint("mine@5"), runs_root).spec.model.source == str(folder)
    assert len(list(runs_root.glob("*/run.json"))) == 1


def test_run_keeps_the_model_it_starts_from_when_the_checkpoint_is_pruned(run):
    runs_root = run.path.parent
    started = RunDirectory.open(runs_root, queue_job(runs_root, from_checkpoint("mine@5")))
    assert started.spec().model.source == f"{run.run_id}@5"
    source = kept_start(started, started.spec().model.source)
    assert source == started.path / "model" / run.run_id / "step-00000005"
    assert started.read_run_info()["parent_run_id"] == run.run_id
    named = checkpoint_path(run.checkpoints_path, 5)
    assert (source / "config.json").samefile(named / "policy" / "config.json")
    prune_checkpoints(run.checkpoints_path, 1)
    assert not named.exists()
    assert [path.name for path in source.iterdir()] == ["config.json"]
    again = RunDirectory.open(runs_root, queue_job(runs_root, run_actions.clone(runs_root, started.run_id)))
    assert (kept_start(again, f"{run.run_id}@5") / "config.json").samefile(source / "config.json")


def test_sharded_checkpoint_is_refused_with_the_command_that_merges_it(run):
    with pytest.raises(CommandError, match="mine@last"):
        starting_checkpoint(run.path.parent, "mine@last")


@pytest.mark.parametrize("target", ["owner/model", "chains-warm"])
def test_other_names_are_no_checkpoints(tmp_path, target):
    assert find_checkpoint(tmp_path, target) is None
    assert starting_checkpoint(tmp_path, target) is None


@pytest.mark.parametrize("step", ["7", "9" * 5000, "\uff15", "-5", ""])
def test_a_step_of_any_other_form_is_no_checkpoint(run, step):
    with pytest.raises(CommandError, match="mine@"):
        find_checkpoint(run.path.parent, f"mine@{step}")
