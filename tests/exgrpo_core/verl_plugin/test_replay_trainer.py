from types import SimpleNamespace

import pytest

from exgrpo_core.errors import InputError
from exgrpo_core.step_report import METRICS
from tests.exgrpo_core.builders import group, replay

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("default")]


def test_renamed_metrics_are_ones_that_steps_have():
    from exgrpo_core.verl_plugin.stock_logs import VERL_NAMES, named_as_in_verl

    assert VERL_NAMES.keys() <= METRICS.keys()
    metrics = {"reward/mean": 0.5, "replay/num_replayed": 3.0, "tokens/generated": 120.0, "seconds/step": 4.0}
    assert named_as_in_verl(metrics, num_gpus=2) == {
        "critic/score/mean": 0.5, "replay/num_replayed": 3.0, "tokens/generated": 120.0, "perf/time_per_step": 4.0,
        "perf/throughput": 15.0,
    }  # fmt: skip


def test_replayed_trajectories_are_among_the_dumped_ones_with_the_step_that_they_come_from():
    from exgrpo_core.verl_plugin.stock_logs import dumped_rows

    fresh, mixed = group(0, [1.0, 0.0]), group(1, [0.0], replay(1, [5, 6], [-1.0, -1.0], [-0.5, -0.5]))
    for trajectory in (*fresh.trajectories, *mixed.trajectories):
        trajectory.rollout_step = 4
    rows = dumped_rows([fresh, mixed])
    assert rows == {
        "inputs": [[1, 2, 0], [1, 2, 0], [1, 2, 1], [1, 2, 1]], "outputs": [[3, 4], [3, 5], [3, 4], [5, 6]],
        "gts": ["7"] * 4, "scores": [1.0, 0.0, 0.0, 1.0], "rollout_step": [4, 4, 4, 1],
        "is_replayed": [False, False, False, True],
    }  # fmt: skip


def test_a_setting_that_replay_cannot_follow_ends_the_run_before_its_first_step_with_a_sentence():
    from hydra import compose, initialize_config_module
    from verl.trainer.ppo.v1 import get_trainer_cls

    lines = ["algorithm.adv_estimator=grpo", "trainer.v1.trainer_mode=exgrpo", "+exgrpo.experience_rato=0.5"]
    lines.append("actor_rollout_ref.rollout.name=vllm")
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=lines)
    with pytest.raises(InputError) as refusal:
        get_trainer_cls("exgrpo")(config=config)
    assert "exgrpo.experience_rato: there is no such setting; did you mean experience_ratio?" in str(refusal.value)
    assert "actor_rollout_ref.actor.loss_agg_mode: expected seq-mean-token-sum-norm" in str(refusal.value)


class AgentLoopDiedError(Exception):
    """What a trainer raises whose agent loops have died."""


def die():
    raise AgentLoopDiedError


def test_validation_ends_where_an_agent_loop_has_died(monkeypatch):
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    from exgrpo_core.verl_plugin import trainer_v1

    trainer = object.__new__(trainer_v1.ReplayTrainer)
    trainer.replay_buffer = ReplayBuffer("sync", {}, None, "drop", {}, poll_interval=0.0)
    trainer.check_agent_loops = die
    trainer.on_init_end()
    trainer.replay_buffer._wait_for_next_poll("val", 0.0)
    monkeypatch.setattr(trainer_v1, "HEALTH_CHECK_SECONDS", -1.0)
    with pytest.raises(AgentLoopDiedError):
        trainer.replay_buffer._wait_for_next_poll("val", 0.0)


def test_a_late_health_check_does_not_make_the_next_poll_late(monkeypatch):
    from exgrpo_core.verl_plugin import rollout_queue

    answers, slept, now = iter(["running", "running", "finished"]), [], [0.0]

    def list_prompts(partition_id):
        now[0] += 0.5
        return {partition_id: {"0-0": {"status": next(answers)}}}

    def sleep(seconds):
        slept.append(seconds)
        now[0] += 30.0

    def check_late():
        now[0] += 20.0

    monkeypatch.setattr(rollout_queue, "tq", SimpleNamespace(kv_list=list_prompts))
    monkeypatch.setattr(rollout_queue, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    rollout_queue._await_prompts({"0-0"}, "train", check_late)
    assert slept == [2.0, 2.0]
    assert now == [81.5]
