"""A user of stock verl installs `exgrpo-core` and turns replay on with three lines of configuration."""

import sys
from pathlib import Path

import pytest

from jobs.runs.rollout_formats import verl_dumps
from jobs.runs.rollout_formats.source import RolloutSource
from tests.exgrpo_core.verl_plugin import stock_verl
from tests.exgrpo_core.verl_plugin.stock_verl import imports, launch, make_environment, metrics_of, rollouts_of

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3 * stock_verl.RUN_SECONDS)]

THREE_LINES = (
    "trainer.v1.trainer_mode=exgrpo",
    "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
    "+exgrpo.start_pass_rate=null",
)


AHEAD = (
    "+exgrpo.rollouts_ahead=true",
    "+exgrpo.sampler_correction=truncate",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
)


def test_the_command_refuses_to_replay_on_the_older_trainer(tmp_path):
    run = launch(
        Path(sys.executable), tmp_path, stock_verl.write_inputs(tmp_path), [*THREE_LINES, "trainer.use_v1=False"]
    )
    assert run.returncode != 0
    assert "trainer.use_v1: expected True if trainer.v1.trainer_mode is exgrpo" in run.stdout
    assert not (tmp_path / "metrics.jsonl").exists()


def test_replayed_trajectories_enter_the_updates_of_stock_verl_and_its_checkpoints_keep_the_buffer(tmp_path):
    python = make_environment(tmp_path / "environment")
    assert not imports(python, "jobs")
    settings = stock_verl.write_inputs(tmp_path)
    first = {"trainer.total_training_steps": 3, "trainer.save_freq": 3, "trainer.val_before_train": True}
    run = launch(python, tmp_path, settings | first, THREE_LINES)
    assert run.returncode == 0, run.stdout[-5000:]
    metrics = metrics_of(tmp_path)
    assert any(name.startswith("val-core/toy/") for name in metrics[0])
    assert metrics[1]["replay/num_replayed"] == 0
    assert metrics[3]["replay/num_replayed"] > 0
    # The workers' losses saw replayed tokens, whose ratios are against the policy that generated them.
    assert 0.0 < metrics[3]["ratio/replayed_mean"] != 1.0
    assert {"critic/score/mean", "actor/grad_norm", "timing_s/gen", "timing_s/step"} <= metrics[3].keys()
    replayed = [row for row in rollouts_of(tmp_path, 3) if row["is_replayed"]]
    assert len(replayed) == metrics[3]["replay/num_replayed"]
    assert all(row["score"] == 1.0 and row["rollout_step"] < 3 for row in replayed)
    source = RolloutSource(tmp_path / "rollouts")
    assert {step.step for step in verl_dumps.read(source)} == {1, 2, 3}
    assert source.bad.num == 0

    second = {"trainer.total_training_steps": 5, "trainer.save_freq": -1, "+ray_kwargs.ray_init.num_gpus": 2}
    run = launch(python, tmp_path, settings | second, [*THREE_LINES, *AHEAD])
    assert run.returncode == 0, run.stdout[-5000:]
    resumed = metrics_of(tmp_path)
    assert resumed.keys() == {4, 5}
    # The rollouts of step 5 were begun before the update of step 4.
    assert resumed[4]["generator/log_prob_gap"] < 1e-4 < resumed[5]["generator/log_prob_gap"]
    assert resumed[4]["tokens/generated_total"] > metrics[3]["tokens/generated_total"]
    outputs = {(row["input"], row["output"]) for step in (1, 2, 3) for row in rollouts_of(tmp_path, step)}
    replayed = [row for row in rollouts_of(tmp_path, 4) if row["is_replayed"]]
    assert replayed
    assert {(row["input"], row["output"]) for row in replayed} <= outputs
