import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, Qwen2Config

from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.model import generate, score_sequences, wrap_model
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.update import OptimSettings, PolicyOptimizer, PolicyUpdater
from exgrpo_core.errors import EngineError
from tests.jobs.training.engines.embedded.engines import CONFIG, EvenTokenReward
from tests.jobs.training.engines.embedded.prompts import plain_scores, sampler
from tests.jobs.training.engines.tiny_models import SIZES, VOCABULARY_SIZE, tiny_tokenizer

pytestmark = pytest.mark.slow

BORDER = 24
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SHORT, LONG = [1.0, 1.2, 1.5, 2.0], [1.0, 3.0, 7.0, 20.0]


def longrope(**changes):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT, "long_factor": LONG, **changes}


def dynamic(factor):
    return {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": factor}


def sizes(context):
    return {**SIZES, "max_position_embeddings": context, **HEADS}


CONFIGS = {
    "phi3": lambda: Phi3Config(**sizes(128), original_max_position_embeddings=BORDER, rope_parameters=longrope()),
    "llama, longrope": lambda: LlamaConfig(
        **sizes(128), rope_parameters=longrope(original_max_position_embeddings=BORDER)
    ),
    "qwen2, longrope with factor": lambda: Qwen2Config(
        **sizes(128), rope_parameters=longrope(original_max_position_embeddings=BORDER, factor=8.0)
    ),
    "llama, dynamic 2": lambda: LlamaConfig(**sizes(BORDER), rope_parameters=dynamic(2.0)),
    "llama, dynamic 4": lambda: LlamaConfig(**sizes(BORDER), rope_parameters=dynamic(4.0)),
    "qwen2, dynamic 8": lambda: Qwen2Config(**sizes(BORDER), rope_parameters=dynamic(8.0)),
}
LONGROPE = [name for name in CONFIGS if "dynamic" not in name]


def build(name):
    torch.manual_seed(0)
    return wrap_model(AutoModelForCausalLM.from_config(CONFIGS[name]()), tiny_tokenizer(), torch.device("cpu"))


def fresh_copy(name, policy):
    fresh = AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    fresh.load_state_dict(policy.model.state_dict())
    return fresh


def tokens(num, rng):
    return rng.integers(2, VOCABULARY_SIZE, num).astype(np.int32)


def mixed_lengths():
    """Sequences far from the border, at it and beyond it, long ones first: what they leave behind must not count."""
    rng = np.random.default_rng(5)
    pairs = [(40, 20), (2, 3), (20, 4), (20, 5), (24, 9), (30, 3), (5, 18), (1, 60)]
    return [TokenSequence(tokens(prompt, rng), tokens(response, rng)) for prompt, response in pairs]


def expected_scores(name, policy, sequences):
    """Log-probs and entropies of each row by transformers, each time by a model that has seen no other row."""
    for item in sequences:
        yield plain_scores(fresh_copy(name, policy), item.prompt_ids, item.token_ids)


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_in_a_batch_are_those_of_each_sequence_alone(name):
    policy, sequences = build(name), mixed_lengths()
    for order in (sequences, sequences[::-1]):
        scores = score_sequences(policy, order, 1.0)
        for row, (log_probs, entropies) in enumerate(expected_scores(name, policy, order)):
            np.testing.assert_allclose(scores.log_probs[row], log_probs, atol=1e-4)
            np.testing.assert_allclose(scores.entropies[row], entropies, atol=1e-4)


@pytest.mark.parametrize("name", LONGROPE)
def test_sampled_tokens_have_the_log_probs_of_each_sequence_alone(name):
    policy, rng = build(name), np.random.default_rng(2)
    policy.end_token_ids.fill_(-1)
    prompts = [tokens(num, rng) for num in (50, 3, 30, 14, 25, 1)]  # within the border with their response, or beyond
    responses = generate(policy, prompts, 10, sampler())
    sequences = [TokenSequence(prompt, item.token_ids) for prompt, item in zip(prompts, responses, strict=True)]
    for item, (log_probs, _) in zip(responses, expected_scores(name, policy, sequences), strict=True):
        np.testing.assert_allclose(item.log_probs, log_probs, atol=1e-4)


@pytest.mark.parametrize("name", ["phi3", "llama, dynamic 4"])
def test_a_step_on_demonstrations_is_that_of_each_sequence_alone(name):
    policy, sequences = build(name), mixed_lengths()
    num_tokens = sum(item.token_ids.size for item in sequences)
    total, gradient = 0.0, 0.0
    for item in sequences:
        fresh = fresh_copy(name, policy)
        row = torch.from_numpy(np.concatenate([item.prompt_ids, item.token_ids]).astype(np.int64))[None]
        logits = fresh(row).logits[0, item.prompt_ids.size - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits, row[0, item.prompt_ids.size :], reduction="sum") / num_tokens
        loss.backward()
        total += loss.item()
        gradient = gradient + fresh.model.layers[0].self_attn.o_proj.weight.grad
    updater = PolicyUpdater(policy, PolicyOptimizer(policy.model, OptimSettings(learning_rate=1e-3)), 1.0, None)
    seen = []
    policy.model.model.layers[0].self_attn.o_proj.weight.register_hook(lambda value: seen.append(value.clone()))
    metrics = updater.imitate(sequences)
    np.testing.assert_allclose(metrics["loss/sft"], total, rtol=1e-5)
    np.testing.assert_allclose(sum(seen), gradient, atol=1e-6)


def test_a_response_that_could_cross_the_border_is_refused_by_name():
    with pytest.raises(EngineError, match=r"memory has longrope.* crosses 24 tokens, .* may have 36 here"):
        EmbeddedEngine(build("phi3"), EvenTokenReward(), CONFIG, OptimSettings(learning_rate=1e-3), 0)


def test_longrope_limits_a_response_only_after_a_prompt_within_the_border():
    policy = build("phi3")
    assert [policy.limit_after(num) for num in (1, BORDER, BORDER + 1)] == [BORDER, BORDER, 128]
    assert build("llama, dynamic 2").limit_after(1) == BORDER
