"""What runs on a GPU - bfloat16 products, float32 weights, checkpointed layers - as far as a CPU can show it."""

import dataclasses

import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded import model
from exgrpo.jobs.training.engines.embedded.backend import PackedBackend, PaddedBackend
from exgrpo.jobs.training.engines.embedded.decoder import Decoder
from exgrpo.jobs.training.engines.embedded.model import generate, score_sequences
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring
from tests.jobs.training.engines.embedded.prompts import plain_scores, ragged_prompts, sampler
from tests.jobs.training.engines.tiny_models import build_policy

pytestmark = pytest.mark.slow

COARSE = 0.1
"""bfloat16 keeps 8 bits, and these models' logits are of the order of 10."""


def mixed_policy(architecture):
    policy = build_policy(architecture)
    if policy.is_packed:
        backend = PackedBackend(Decoder(policy.model, torch.bfloat16), checkpoints_gradients=True)
    else:
        backend = PaddedBackend(policy.model, torch.bfloat16)
    return dataclasses.replace(policy, backend=backend)


@pytest.mark.parametrize("architecture", ["qwen2_tied", "qwen3", "llama_with_biases", "gpt2"])
def test_scores_stay_near_float32_and_near_the_sampler_s(architecture):
    policy = mixed_policy(architecture)
    prompts = 2 * ragged_prompts(6)
    responses = generate(policy, prompts, 20, sampler())
    sequences = [TokenSequence(prompt, response.token_ids) for prompt, response in zip(prompts, responses, strict=True)]
    scores = score_sequences(policy, sequences, 1.0)
    gaps, errors = [], []
    for item, response, log_probs in zip(sequences, responses, scores.log_probs, strict=True):
        gaps.append(np.abs(log_probs - response.log_probs).mean())
        errors.append(np.abs(log_probs - plain_scores(policy.model, item.prompt_ids, item.token_ids)[0]).mean())
    assert 0.0 < np.mean(errors) < COARSE
    assert np.mean(gaps) < COARSE


@pytest.mark.parametrize("architecture", ["qwen2_tied", "llama", "gpt2"])
def test_gradients_are_float32_and_point_where_float32_ones_do(architecture):
    sequences = [TokenSequence(prompt, response) for prompt in ragged_prompts(4) for response in ragged_prompts(3)]
    gradients = []
    for policy in (build_policy(architecture), mixed_policy(architecture)):
        policy.backend.score(sequences, Scoring(1.0)).log_probs.sum().backward()
        assert all(parameter.grad.dtype is torch.float32 for parameter in policy.model.parameters())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()]))
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.98


def test_logits_are_finer_than_bfloat16():
    policy = mixed_policy("qwen2_tied")
    decoder, hidden, seen = policy.backend._decoder, torch.randn(8, policy.model.config.hidden_size), []
    for scoring in (torch.no_grad(), torch.enable_grad()):
        with scoring:
            seen.append(decoder.logits(decoder.final_norm(hidden)))
    assert all(bool((logits != logits.bfloat16().float()).any()) for logits in seen)
    torch.testing.assert_close(*seen)


@pytest.mark.parametrize(("has_units", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_large_model_is_computed_as_the_processor_does_it_fast(has_units, expected, monkeypatch, caplog):
    monkeypatch.setattr(model, "uses_bfloat16", lambda num_parameters: has_units and num_parameters > 0)
    caplog.set_level("INFO")
    policy = build_policy("qwen2_tied")
    assert policy.compute_dtype is policy.backend._decoder.compute_dtype is expected
    assert f"computed in {str(expected).removeprefix('torch.')}" in caplog.text
    assert all(parameter.dtype is torch.float32 for parameter in policy.model.parameters())
