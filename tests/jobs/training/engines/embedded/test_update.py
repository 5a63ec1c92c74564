import copy
import dataclasses
import re

import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded import decoder
from exgrpo.jobs.training.engines.embedded.model import score_sequences, wrap_model
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.engines.embedded.update import (
    OptimSettings,
    PolicyOptimizer,
    PolicyUpdater,
    WeightOverflowError,
)
from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow
from exgrpo_core.policy_optimization.objective import LossInputs, MiniBatchSizes, exgrpo_loss
from tests.jobs.training.engines.embedded.prompts import ragged_prompts
from tests.jobs.training.engines.tiny_models import VOCABULARY_SIZE, build_policy

pytestmark = pytest.mark.slow

TEMPERATURE = 0.8
BASE = ExGRPOConfig(
    batch_size=8, mini_batch_size=4, rollouts_per_question=2, max_prompt_tokens=16, max_response_tokens=32,
    temperature=TEMPERATURE, entropy_coefficient=0.0,
)  # fmt: skip
VARIANTS = {
    "plain": BASE,
    "entropy_bonus": dataclasses.replace(BASE, entropy_coefficient=0.05),
    "kl": dataclasses.replace(BASE, kl_coefficient=0.1),
    "token_mean": dataclasses.replace(BASE, loss_aggregation=LossAggregation.TOKEN_MEAN),
}


def mini_batch(seed=0, advantages=None) -> MiniBatch:
    rng = np.random.default_rng(seed)
    rows = []
    for i, prompt in enumerate(2 * ragged_prompts(4, seed)):
        tokens = rng.integers(1, VOCABULARY_SIZE, rng.integers(1, 30)).astype(np.int32)
        behavior = rng.normal(-3.0, 0.5, tokens.size).astype(np.float32)
        advantage = float(rng.normal()) if advantages is None else advantages[i]
        rows.append(TrainingRow(prompt, tokens, behavior, advantage, is_replayed=i % 4 == 3))
    return MiniBatch(rows)


def nearby_reference(policy):
    """A frozen policy close to `policy`, so that the KL estimate is of the size it has in training."""
    model = copy.deepcopy(policy.model).requires_grad_(False)
    torch.manual_seed(5)
    for parameter in model.parameters():
        parameter.add_(0.01 * torch.randn_like(parameter))
    return wrap_model(model, policy.tokenizer, policy.device)


SKIPPING = OptimSettings(learning_rate=1e-3, non_finite="skip")


def updater(policy, optim=None, reference=None, max_tokens=None):
    optimizer = PolicyOptimizer(policy.model, optim or OptimSettings(learning_rate=1e-3))
    return PolicyUpdater(policy, optimizer, TEMPERATURE, reference, max_tokens)


def gradients_of(policy, batch, objective, monkeypatch, reference=None, max_tokens=None):
    """Run an update and return the gradients that its optimizer step saw, before clipping."""
    seen = {}

    def keep(optimizer):
        seen.update({name: parameter.grad.clone() for name, parameter in optimizer._named.items()})
        optimizer.num_steps += 1
        return 1.0

    with monkeypatch.context() as patch:
        patch.setattr(PolicyOptimizer, "step", keep)
        updater(policy, reference=reference, max_tokens=max_tokens).update([batch], objective)
    return seen


def naive_gradients(policy, batch, objective, reference=None):
    """The same gradients from rows padded on the right and the model's own forward."""
    rows = batch.rows
    width = max(row.prompt_ids.size + row.token_ids.size for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    shape = (len(rows), width - 1)
    mask, behavior = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    for i, row in enumerate(rows):
        start, end = row.prompt_ids.size, row.prompt_ids.size + row.token_ids.size
        ids[i, :end] = torch.from_numpy(np.concatenate([row.prompt_ids, row.token_ids]).astype(np.int64))
        mask[i, start - 1 : end - 1] = True
        behavior[i, start - 1 : end - 1] = torch.from_numpy(row.behavior_log_probs)

    def forward(model):
        log_probs = (model(ids).logits[:, :-1] / TEMPERATURE).log_softmax(-1)
        return log_probs.gather(-1, ids[:, 1:, None])[..., 0], -(log_probs.exp() * log_probs).sum(-1)

    log_probs, entropies = forward(policy.model)
    inputs = LossInputs(
        log_probs, behavior, torch.tensor([row.advantage for row in rows])[:, None].expand(shape),
        torch.tensor([row.is_replayed for row in rows])[:, None].expand(shape), mask,
        torch.arange(len(rows))[:, None].expand(shape), entropies,
        None if reference is None else forward(reference.model)[0].detach(),
    )  # fmt: skip
    policy.model.zero_grad()
    exgrpo_loss(inputs, objective, MiniBatchSizes(batch.num_trajectories, batch.num_tokens)).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in policy.model.named_parameters()}


def assert_same_gradients(ones, others, tolerance=1e-5):
    assert ones.keys() == others.keys()
    torch.testing.assert_close(ones, others, atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ["qwen2_tied", "qwen3", "llama_with_biases", "gpt2"])
def test_gradients_are_those_of_a_padded_forward(architecture, variant, monkeypatch):
    policy, objective = build_policy(architecture), build_objective(VARIANTS[variant], is_replay_open=True)
    reference = nearby_reference(policy) if objective.kl_coefficient else None
    batch = mini_batch()
    expected = naive_gradients(policy, batch, objective, reference)
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-3
    assert_same_gradients(gradients_of(policy, batch, objective, monkeypatch, reference), expected)


@pytest.mark.skipif(not decoder.has_packing(), reason="this torch has no oneDNN")
def test_a_reference_with_packed_weights_changes_no_gradient(monkeypatch):
    policy, objective = build_policy(), build_objective(VARIANTS["kl"], is_replay_open=True)
    reference = nearby_reference(policy)
    expected = gradients_of(policy, mini_batch(), objective, monkeypatch, reference)
    monkeypatch.setattr(decoder, "MIN_PACKED_ELEMENTS", 1)
    assert_same_gradients(gradients_of(policy, mini_batch(), objective, monkeypatch, reference), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_do_not_depend_on_micro_batches(variant, monkeypatch):
    policy, objective = build_policy(), build_objective(VARIANTS[variant], is_replay_open=True)
    reference = nearby_reference(policy) if objective.kl_coefficient else None
    whole = gradients_of(policy, mini_batch(), objective, monkeypatch, reference)
    split = gradients_of(policy, mini_batch(), objective, monkeypatch, reference, max_tokens=40)
    assert_same_gradients(split, whole, tolerance=1e-6)


def test_gradient_checkpointing_changes_no_gradient(monkeypatch):
    policy, objective = build_policy(), build_objective(BASE, is_replay_open=True)
    plain = gradients_of(policy, mini_batch(), objective, monkeypatch)
    monkeypatch.setattr(policy.backend, "_checkpoints_gradients", True)
    layers, run_again = set(), decoder.checkpoint
    monkeypatch.setattr(
        decoder,
        "checkpoint",
        lambda run, layer, *rest, **named: layers.add(layer) or run_again(run, layer, *rest, **named),
    )
    assert_same_gradients(gradients_of(policy, mini_batch(), objective, monkeypatch), plain, tolerance=1e-7)
    assert layers == {*range(policy.model.config.num_hidden_layers)}


def test_rows_of_zero_advantage_are_skipped_and_change_nothing(monkeypatch):
    advantages = [0.5, 0.0, 0.0, -0.5, 0.0, 1.0, 0.0, 0.0]
    policy, batch = build_policy(), mini_batch(advantages=advantages)
    objective = build_objective(BASE, is_replay_open=True)
    metrics = updater(build_policy(), OptimSettings(learning_rate=1e-9)).update([batch], objective)
    kept = [row.token_ids.size for row in batch.rows if row.advantage != 0.0]
    assert metrics["optim/num_updated_tokens"] == sum(kept) < batch.num_tokens
    assert_same_gradients(
        gradients_of(policy, batch, objective, monkeypatch), naive_gradients(policy, batch, objective)
    )


@pytest.mark.parametrize("variant", ["entropy_bonus", "kl"])
def test_no_row_is_skipped_where_it_would_matter(variant):
    batch = mini_batch(advantages=[0.0] * 8)
    objective = build_objective(VARIANTS[variant], is_replay_open=True)
    metrics = updater(build_policy(), reference=nearby_reference(build_policy())).update([batch], objective)
    assert metrics["optim/num_updated_tokens"] == batch.num_tokens
    assert metrics["optim/gradient_norm"] > 0


def test_a_mini_batch_of_zero_advantages_still_moves_by_momentum():
    policy = build_policy()
    update = updater(policy)
    objective = build_objective(BASE, is_replay_open=True)
    update.update([mini_batch()], objective)
    before = policy.model.lm_head.weight.detach().clone()
    metrics = update.update([mini_batch(advantages=[0.0] * 8)], objective)
    assert metrics["optim/num_updated_tokens"] == 0
    assert metrics["optim/gradient_norm"] == 0
    assert metrics["loss/total"] == 0
    assert not torch.equal(before, policy.model.lm_head.weight)


def test_two_mini_batches_take_two_optimizer_steps_as_plain_adamw_does():
    policy, other_policy = build_policy(), build_policy()
    objective = build_objective(BASE, is_replay_open=True)
    settings = OptimSettings(learning_rate=1e-3, weight_decay=0.1, beta1=0.8, beta2=0.95, max_gradient_norm=0.05)
    updater(policy, settings).update([mini_batch(0), mini_batch(1)], objective)
    plain = torch.optim.AdamW(other_policy.model.parameters(), lr=1e-3, weight_decay=0.1, betas=(0.8, 0.95))
    for seed in (0, 1):
        naive_gradients(other_policy, mini_batch(seed), objective)
        assert torch.nn.utils.clip_grad_norm_(other_policy.model.parameters(), 0.05) > 0.05
        plain.step()
    for one, other in zip(policy.model.parameters(), other_policy.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_warm_up_raises_the_learning_rate_linearly():
    parameter = torch.nn.Parameter(torch.zeros(1))
    module = torch.nn.ParameterList([parameter])
    optimizer = PolicyOptimizer(module, OptimSettings(learning_rate=0.1, beta1=0.0, beta2=0.0, warmup_steps=4))
    places = [0.0]
    for _ in range(5):
        parameter.grad = torch.ones(1)
        optimizer.step()
        places.append(float(parameter.detach()))
    np.testing.assert_allclose(-np.diff(places), [0.025, 0.05, 0.075, 0.1, 0.1], rtol=1e-4)


def test_gap_compares_fresh_rows_of_the_first_mini_batch_before_its_step():
    policy = build_policy()
    batch = mini_batch()
    sequences = [row for row in batch.rows if not row.is_replayed]
    scores = score_sequences(policy, [TokenSequence(row.prompt_ids, row.token_ids) for row in sequences], TEMPERATURE)
    gaps = np.concatenate(
        [np.abs(new - row.behavior_log_probs) for new, row in zip(scores.log_probs, sequences, strict=True)]
    )
    metrics = updater(policy).update([batch, mini_batch(1)], build_objective(BASE, is_replay_open=True))
    assert metrics["generator/log_prob_gap"] == pytest.approx(gaps.mean(), abs=1e-5)
    assert metrics["generator/log_prob_gap_max"] == pytest.approx(gaps.max(), abs=1e-5)


def test_a_loss_that_is_not_finite_is_refused_and_names_the_step():
    policy = build_policy()
    before = copy.deepcopy(policy.model.state_dict())
    update = updater(policy)
    good, bad = mini_batch(), mini_batch(1, advantages=[1.0, float("nan"), *[0.5] * 6])
    with pytest.raises(EngineError, match=r"optimizer step 1 \(mini-batch 1 of 1\).*loss is nan"):
        update.update([bad], build_objective(BASE, is_replay_open=True))
    for name, value in policy.model.state_dict().items():
        assert torch.equal(value, before[name])
    with pytest.raises(EngineError, match=r"optimizer step 2 \(mini-batch 2 of 2\)"):
        update.update([good, bad], build_objective(BASE, is_replay_open=True))


def test_a_mini_batch_that_is_not_finite_is_left_out_and_counted_where_the_settings_say_so():
    policy, alone = build_policy(), build_policy()
    good, bad = mini_batch(), mini_batch(1, advantages=[1.0, float("nan"), *[0.5] * 6])
    objective = build_objective(BASE, is_replay_open=True)
    metrics = updater(policy, SKIPPING).update([bad, good, bad], objective)
    expected = updater(alone, SKIPPING).update([good], objective)
    assert (metrics.pop("optim/num_skipped"), expected.pop("optim/num_skipped")) == (2.0, 0.0)
    assert metrics == {name: value for name, value in expected.items() if not name.startswith("generator/")}
    for name, value in policy.model.state_dict().items():
        assert torch.equal(value, alone.model.state_dict()[name])
    assert updater(policy, SKIPPING).update([bad], objective) == {"optim/num_skipped": 1.0}


def test_a_gradient_that_is_not_finite_is_refused_and_leaves_the_moments():
    policy = build_policy()
    update = updater(policy)
    objective = build_objective(BASE, is_replay_open=True)
    update.update([mini_batch()], objective)
    moments = {name: value.clone() for name, value in update._optimizer.state_tensors().items()}
    with torch.no_grad():
        policy.model.model.layers[0].mlp.gate_proj.weight[0, 0] = 1e38
        policy.model.model.layers[0].mlp.up_proj.weight[0, 0] = 1e38
    with pytest.raises(EngineError, match="not applied"):
        update.update([mini_batch(1)], objective)
    for name, value in update._optimizer.state_tensors().items():
        assert torch.equal(value, moments[name])


@pytest.mark.parametrize("learning_rate", [1e20, 1e38])
@pytest.mark.parametrize("skips", [False, True])
def test_learning_rate_that_makes_weights_too_large_ends_with_a_sentence(learning_rate, skips):
    sentence = rf"optimizer step 1 \(learning rate {re.escape(f'{learning_rate:g}')}\) made weights too large"
    settings = OptimSettings(learning_rate=learning_rate, non_finite="skip" if skips else "stop")
    with pytest.raises(WeightOverflowError, match=sentence) as refused:
        updater(build_policy(), settings).update([mini_batch()], build_objective(BASE, is_replay_open=True))
    assert refused.value.fields == ("optim.learning_rate",)
    with pytest.raises(WeightOverflowError, match=sentence):
        updater(build_policy(), settings).imitate(
            [TokenSequence(row.prompt_ids, row.token_ids) for row in mini_batch().rows]
        )


@pytest.mark.parametrize("vocabulary", [50, 4096, 5000])
def test_logits_that_are_no_numbers_are_drawn_from_with_log_probs_that_are_none(vocabulary):
    for logits in (torch.full((2, vocabulary), float("nan")), torch.full((2, vocabulary), float("inf"))):
        draws = Sampler(0.8, torch.Generator().manual_seed(0)).draw(logits, lambda hidden: hidden, vocabulary)
        assert bool((draws.token_ids < vocabulary).all())
        assert bool(draws.log_probs.isnan().all())
