import dataclasses
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from exgrpo.jobs.evaluation.model_folder import merge_shards
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.state import ExGRPOState
from tests.jobs.training.engines.contract import stored, training_rows
from tests.jobs.training.engines.embedded.engines import CONFIG, LORA, make_engine, make_questions
from tests.jobs.training.engines.paired_engines import PairedEngines
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1200)]

ADAPTED = "qwen2_tied+lora"
PENALIZED = dataclasses.replace(CONFIG, kl_coefficient=0.1)
OBJECTIVE = build_objective(PENALIZED, is_replay_open=True)
SHARD = "workers/model_world_size_1_rank_0.pt"
STEPS_TOLERANCE = 1e-3
"""Optimizers amplify the rounding of four updates."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """An engine with adapters on one rank, its folder, and the checkpoint of its first state."""
    folder = tmp_path_factory.mktemp("adapters")
    lora = {"rank": LORA.rank, "alpha": LORA.alpha, "target_modules": LORA.target_modules}
    with open_engine(folder, 1, lora=lora, learning_rate=2e-2, kl_coefficient=PENALIZED.kl_coefficient) as engine:
        engine.save(folder / "first")
        yield engine, folder


@pytest.fixture
def engine(running):
    engine, folder = running
    engine.restore(folder / "first")
    return engine


def take_step(engine):
    groups = engine.rollout([RolloutRequest(question, 4) for question in make_questions(6)])
    rows = training_rows(groups, [1.0, -0.5, -0.5, 0.0] * len(groups))
    metrics = engine.update([MiniBatch(rows, 0)], OBJECTIVE)
    return [item for group in groups for item in group.trajectories], metrics


def weights_of(checkpoint):
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in torch.load(checkpoint / SHARD, weights_only=False).items()
    }


def test_two_steps_with_a_kl_penalty_are_those_of_the_embedded_engine(engine, tmp_path):
    pair = PairedEngines(make_engine(ADAPTED, kl_coefficient=PENALIZED.kl_coefficient), engine)
    state = ExGRPOState.create(tmp_path, make_questions(8), PENALIZED)
    reports = [exgrpo_step(state, pair, PENALIZED) for _ in range(2)]
    assert reports[-1].metrics["loss/kl"] > 0.0
    pair.assert_equal(STEPS_TOLERANCE)


def test_updates_change_the_adapters_alone_and_the_generator_has_them(engine, running, tmp_path):
    from exgrpo_core.verl_plugin.rows import TokenRow

    for _ in range(2):
        take_step(engine)
    trajectories, _ = take_step(engine)
    for item in trajectories:
        np.testing.assert_allclose(item.sampler_log_probs, item.log_probs, atol=1e-4)
    groups = engine.rollout([RolloutRequest(question, 2) for question in make_questions(6)])
    questions, experiences = stored(groups)
    rows = [TokenRow(one.prompt_ids, two.token_ids) for one, two in zip(questions, experiences, strict=True)]
    reference = engine.trainer.reference_log_probs(rows)
    gaps = [np.abs(item.behavior_log_probs - two).max() for item, two in zip(experiences, reference, strict=True)]
    assert max(gaps) > 1e-2
    engine.save(tmp_path)
    before, after = weights_of(running[1] / "first"), weights_of(tmp_path)
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {name for name in before if "lora_" in name}
    model = AutoModelForCausalLM.from_pretrained(running[1] / "model").state_dict()
    assert all(
        torch.equal(value, model[name.removeprefix("base_model.model.").replace(".base_layer", "")])
        for name, value in after.items()
        if "lora_" not in name
    )


def test_restored_engine_draws_and_learns_what_the_saved_one_did(engine, tmp_path):
    take_step(engine)
    engine.save(tmp_path)
    trajectories, metrics = take_step(engine)
    engine.restore(tmp_path)
    again, same = take_step(engine)
    assert [item.token_ids.tolist() for item in again] == [item.token_ids.tolist() for item in trajectories]
    # The generator's rounding depends on which requests it gathers into a batch.
    assert all(same[name] == metrics[name] for name in metrics if not name.startswith("generator/"))


def test_checkpoint_is_merged_into_a_model_without_adapters(engine, tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, sys.executable)
    take_step(engine)
    take_step(engine)
    engine.save(tmp_path)
    merge_shards(tmp_path / "workers", tmp_path / "merged")
    assert not (tmp_path / "merged" / "lora_adapter").exists()
    weights, merged = weights_of(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict()
    prefix = "base_model.model.model.layers.0.mlp.down_proj"
    first, second = (weights[f"{prefix}.lora_{part}.default.weight"] for part in "AB")
    expected = weights[f"{prefix}.base_layer.weight"] + LORA.alpha / LORA.rank * second @ first
    torch.testing.assert_close(merged["model.layers.0.mlp.down_proj.weight"].float(), expected, atol=1e-3, rtol=2**-7)
