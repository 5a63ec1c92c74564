import pytest

from jobs.engines.embedded.model import CPU_BYTES
from jobs.engines.embedded.vocabulary import MAX_LOGITS
from jobs.preflight import embedded_memory
from jobs.preflight.embedded_memory import estimate_peak, training_state_bytes
from jobs.preflight.model_shapes import ModelShape
from jobs.specs.train import load_preset, merge_settings, parse_spec
from tests.jobs.engines.tiny_models import build_policy

SMOLLM2 = ModelShape(
    hidden=576, intermediate=1536, layers=30, heads=9, kv_heads=3, vocabulary=49152, is_tied=True, context=8192
)  # fmt: skip
MEASURED = {"full": 3.353e9, "lora": 2.133e9}
"""Peaks of two steps of SFT on SmolLM2-135M-Instruct: 3 responses of 64 tokens to prompts of 54 tokens."""

ADAPTERS = {"model": {"lora": {"rank": 16, "alpha": 32}}}
MEASURED_RUNS = [
    ("smollm2-word-problems-sft", {}, 5.92e9),
    ("smollm2-word-problems", {}, 4.91e9),
    ("smollm2-word-problems-on-policy", {}, 4.72e9),
    ("smollm2-word-problems", ADAPTERS, 3.28e9),
]
"""Peaks of whole runs: 110 steps of SFT, 60 of the others."""


def three_responses(lora: dict | None, **algorithm: float):
    lengths = {"max_prompt_tokens": 54, "max_response_tokens": 64, "batch_size": 3, "mini_batch_size": 3}
    content = {
        "model": {"source": "smollm2", "lora": lora},
        "data": {"source": "word_problems"},
        "algorithm": lengths | {"experience_ratio": 0.0} | algorithm,
        "sft": {},
    }
    return parse_spec(content, "test")


@pytest.mark.parametrize("kind", MEASURED)
def test_estimate_is_within_a_fifth_of_what_was_measured(kind):
    spec = three_responses({"rank": 16} if kind == "lora" else None)
    assert estimate_peak(SMOLLM2, spec) == pytest.approx(MEASURED[kind], rel=0.2)


@pytest.mark.parametrize(("preset", "changes", "measured"), MEASURED_RUNS)
def test_estimate_is_within_a_fifth_of_whole_runs(preset, changes, measured):
    spec = parse_spec(merge_settings(load_preset(preset).model_dump(mode="json"), changes), "test")
    assert estimate_peak(SMOLLM2, spec) == pytest.approx(measured, rel=0.2)


def test_adapters_need_neither_moments_nor_gradients_of_the_weights_nor_a_copy_for_a_kl_penalty():
    full, lora = three_responses(None), three_responses({"rank": 16})
    assert training_state_bytes(SMOLLM2, full) == 16 * SMOLLM2.parameters
    assert training_state_bytes(SMOLLM2, lora) < 4.5 * SMOLLM2.parameters
    for plain, copied in ((full, 4 * SMOLLM2.parameters), (lora, 0)):
        penalized = three_responses(plain.model.lora and plain.model.lora.model_dump(), kl_coefficient=0.1)
        assert estimate_peak(SMOLLM2, penalized) - estimate_peak(SMOLLM2, plain) == copied


def test_estimate_counts_as_the_engine_does():
    assert (embedded_memory.WORKING_BYTES, embedded_memory.MAX_LOGITS) == (CPU_BYTES, MAX_LOGITS)
    policy = build_policy("llama")
    config = policy.model.config
    shape = ModelShape(
        config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
        config.num_key_value_heads, config.vocab_size, config.tie_word_embeddings, 128,
    )  # fmt: skip
    assert embedded_memory._bytes_per_token(shape, num_hidden=14) == policy.backend.training_bytes_per_token
