import dataclasses

import pytest

from exgrpo.jobs.actions.preflight import memory_estimate
from exgrpo.jobs.actions.preflight.memory_estimate import (
    OVERHEAD_BYTES,
    estimate_memory,
    estimate_peak,
    training_state_bytes,
)
from exgrpo.jobs.specs.base import LoraSpec
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, load_preset, merge_settings, parse_spec
from exgrpo.jobs.training.engines.embedded.model import CPU_BYTES
from exgrpo.jobs.training.engines.embedded.sampling import MAX_LOGITS
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape, model_shape
from tests.jobs.training.engines.tiny_models import build_policy

SMOLLM2 = ModelShape(
    hidden=576, intermediate=1536, layers=30, heads=9, kv_heads=3, vocabulary=49152, is_tied=True, context=8192
)  # fmt: skip
"""Peaks of two steps of SFT on SmolLM2-135M-Instruct: 3 responses of 64 tokens to prompts of 54 tokens."""

ADAPTERS = {"model": {"lora": {"rank": 16, "alpha": 32}}}
MEASURED_RUNS = [
    ("smollm2-word-problems-sft", {}, 5.92e9), ("smollm2-word-problems", {}, 4.91e9),
    ("smollm2-word-problems-on-policy", {}, 4.72e9), ("smollm2-word-problems", ADAPTERS, 3.28e9),
]  # fmt: skip
"""Peaks of whole runs: 110 steps of SFT, 60 of the others."""


def three_responses(lora: dict | None, **algorithm: float):
    lengths = {"max_prompt_tokens": 54, "max_response_tokens": 64, "batch_size": 3, "mini_batch_size": 3}
    content = {
        "model": {"source": "smollm2", "lora": lora}, "data": {"source": "word_problems"},
        "algorithm": lengths | {"experience_ratio": 0.0} | algorithm, "sft": {},
    }  # fmt: skip
    return parse_spec(content, "test")


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
    assert (memory_estimate.WORKING_BYTES, memory_estimate.MAX_LOGITS) == (CPU_BYTES, MAX_LOGITS)
    policy = build_policy("llama")
    config = policy.model.config
    shape = ModelShape(
        config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
        config.num_key_value_heads, config.vocab_size, config.tie_word_embeddings, 128,
    )  # fmt: skip
    assert memory_estimate._bytes_per_token(shape, num_hidden=14) == policy.backend.training_bytes_per_token


TINY = ModelShape(
    hidden=4, intermediate=8, layers=2, heads=2, kv_heads=1, vocabulary=10, is_tied=True, context=32
)  # fmt: skip
PARAMETERS = 348


def tiny_spec(**verl) -> TrainSpec:
    algorithm = {
        "batch_size": 2, "mini_batch_size": 2, "rollouts_per_question": 4, "max_prompt_tokens": 8,
        "max_response_tokens": 24,
    }  # fmt: skip
    return parse_spec({"engine": "verl", "algorithm": algorithm, "verl": {"gpus_per_node": 2} | verl}, "test")


def test_a_tiny_model_by_hand():
    estimate = estimate_memory(TINY, tiny_spec())
    gathered = (10 * 4 + 4 + 2 * 152) * 2
    assert estimate.weights == PARAMETERS * 4 // 2 + gathered
    assert estimate.gradients == PARAMETERS * 4 // 2
    assert estimate.optimizer == PARAMETERS * 8 // 2
    assert estimate.activations == 64 * (2 * 4 + 20 * 4 + 7 * 8) * 2
    assert estimate.logits == 64 * 10 * 14 + 10 * 4 * 2
    assert estimate.rollout_weights == PARAMETERS * 2
    assert estimate.kv_cache == 4 * 32 * 8 * 2
    rollout = PARAMETERS * 4 // 2 + estimate.optimizer + estimate.rollout_weights + estimate.kv_cache
    assert estimate.rollout == rollout + OVERHEAD_BYTES


def test_an_output_matrix_that_is_not_the_embedding_is_gathered_too_and_a_kl_penalty_keeps_a_second_model():
    plain = estimate_memory(TINY, tiny_spec()).weights
    untied = dataclasses.replace(TINY, is_tied=False)
    assert estimate_memory(untied, tiny_spec()).weights - plain == 10 * 4 * (4 // 2 + 2)
    penalised = apply_settings(tiny_spec(), ["algorithm.kl_coefficient=0.1"])
    assert estimate_memory(TINY, penalised).weights - plain == PARAMETERS * 4 // 2


def test_adapters_are_all_that_has_gradients_and_a_kl_penalty_keeps_no_second_model():
    spec = tiny_spec()
    adapted = spec.model_copy(
        update={
            "model": spec.model.model_copy(update={"lora": LoraSpec(rank=3, target_modules=("k_proj", "down_proj"))}),
            "algorithm": dataclasses.replace(spec.algorithm, kl_coefficient=0.1),
        }
    )
    estimate, plain = estimate_memory(TINY, adapted), estimate_memory(TINY, spec)
    adapters = 2 * 3 * ((4 + 2) + (8 + 4))
    assert estimate.gradients == adapters * 4 // 2
    assert estimate.optimizer == adapters * 8 // 2
    assert estimate.weights - plain.weights == adapters * 4 // 2 + 2 * adapters // 2 * 2
    assert estimate.rollout_weights == plain.rollout_weights


def test_gpus_that_only_generate_hold_no_training_state():
    together = load_preset("paper-exgrpo")
    apart = apply_settings(together, ["algorithm.rollouts_ahead=true", "algorithm.sampler_correction=truncate"])
    estimates = [estimate_memory(model_shape(spec.model.source), spec) for spec in (together, apart)]
    state = estimates[0].weights - estimates[0].gathered + estimates[0].optimizer
    assert estimates[0].rollout - estimates[1].rollout == state
    assert estimates[0].update == estimates[1].update
    notes = [{name: note for name, _, note in estimate.parts} for estimate in estimates]
    assert {name for name in notes[0] if notes[0][name] != notes[1][name]} == {
        "update, all together",
        "rollout, all together",
    }
    shortages = [dataclasses.replace(estimate, gpu=estimate.rollout - 1, activations=0) for estimate in estimates]
    assert [short.shortage.startswith("generation next to") for short in shortages] == [True, False]
    assert shortages[1].shortage.startswith("generation")
