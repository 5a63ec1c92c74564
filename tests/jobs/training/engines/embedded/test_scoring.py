import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded import decoder
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, score_sequences
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from tests.jobs.training.engines.embedded.prompts import plain_scores, ragged_prompts
from tests.jobs.training.engines.tiny_models import ARCHITECTURES, VOCABULARY_SIZE, build_policy

pytestmark = pytest.mark.slow


def ragged_sequences(count=14, seed=11, longest=40):
    rng = np.random.default_rng(seed)
    return [
        TokenSequence(prompt, rng.integers(0, VOCABULARY_SIZE, rng.integers(1, longest)).astype(np.int32))
        for prompt in 2 * ragged_prompts(count // 2, seed)
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_are_those_of_a_plain_forward(architecture):
    temperature = 0.6
    policy = build_policy(architecture)
    sequences = ragged_sequences()
    scores = score_sequences(policy, sequences, temperature)
    for item, log_probs, entropies in zip(sequences, scores.log_probs, scores.entropies, strict=True):
        expected, expected_entropies = plain_scores(policy.model, item.prompt_ids, item.token_ids, temperature)
        np.testing.assert_allclose(log_probs, expected, atol=1e-4)
        np.testing.assert_allclose(entropies, expected_entropies, atol=1e-4)
        assert log_probs.dtype == entropies.dtype == np.float32


@pytest.mark.skipif(not decoder.has_packing(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("architecture", ["qwen2_tied", "qwen3", "llama_with_biases"])
def test_packed_weights_give_the_scores_of_a_plain_forward_also_after_they_changed(architecture, monkeypatch):
    monkeypatch.setattr(decoder, "MIN_PACKED_ELEMENTS", 1)
    policy = build_policy(architecture)
    assert decoder.pack_matrix(policy.model.lm_head.weight).is_mkldnn
    sequences = ragged_sequences()
    for _ in range(2):
        scores = score_sequences(policy, sequences, 1.0)
        for item, log_probs in zip(sequences, scores.log_probs, strict=True):
            expected, _ = plain_scores(policy.model, item.prompt_ids, item.token_ids)
            np.testing.assert_allclose(log_probs, expected, atol=1e-4)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(1.1)
        policy.backend.weights_changed()


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_small_token_budget_changes_neither_scores_nor_order(architecture, monkeypatch):
    policy = build_policy(architecture)
    sequences = ragged_sequences()
    whole = score_sequences(policy, sequences, 1.0)
    num_bytes = 16 * policy.backend.training_bytes_per_token
    monkeypatch.setattr(PolicyModel, "working_bytes", property(lambda _: num_bytes))
    split = score_sequences(policy, sequences, 1.0)
    for one, other in zip(whole.log_probs, split.log_probs, strict=True):
        np.testing.assert_allclose(one, other, atol=5e-5)


def test_an_empty_response_is_refused():
    empty = TokenSequence(np.array([3], dtype=np.int32), np.empty(0, dtype=np.int32))
    with pytest.raises(ValueError, match="token"):
        score_sequences(build_policy(), [empty], 1.0)
