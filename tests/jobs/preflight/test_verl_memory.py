import dataclasses

import pytest

from jobs.preflight.model_shapes import ModelShape, model_shape
from jobs.preflight.verl_memory import ASSUMED_GPU_BYTES, OVERHEAD_BYTES, estimate_memory
from jobs.specs.lora import LoraSpec
from jobs.specs.train import TrainSpec, load_preset, parse_spec

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
    rollout = estimate.weights + estimate.optimizer + estimate.rollout_weights + estimate.kv_cache
    assert estimate.rollout == rollout + OVERHEAD_BYTES


def test_an_output_matrix_that_is_not_the_embedding_is_gathered_too():
    untied = dataclasses.replace(TINY, is_tied=False)
    more = estimate_memory(untied, tiny_spec()).weights - estimate_memory(TINY, tiny_spec()).weights
    assert more == 10 * 4 * (4 // 2 + 2)


def test_a_kl_penalty_keeps_a_second_model():
    spec = tiny_spec()
    penalised = spec.model_copy(update={"algorithm": dataclasses.replace(spec.algorithm, kl_coefficient=0.1)})
    more = estimate_memory(TINY, penalised).weights - estimate_memory(TINY, spec).weights
    assert more == PARAMETERS * 4 // 2


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


@pytest.mark.parametrize("name", ["paper-exgrpo", "paper-llama-base", "paper-qwen2.5-math-1.5b"])
def test_the_papers_runs_fit_on_its_eight_gpus_of_80_gib(name):
    spec = load_preset(name)
    shape = model_shape(spec.model.source)
    assert shape is not None
    estimate = estimate_memory(shape, spec)
    # A tenth is left for what the estimate does not know.
    assert estimate.update < 0.9 * ASSUMED_GPU_BYTES
    assert estimate.rollout < 0.9 * ASSUMED_GPU_BYTES


def test_a_7b_model_does_not_fit_on_one_gpu_of_80_gib():
    spec = load_preset("paper-exgrpo")
    alone = spec.model_copy(update={"verl": spec.verl.model_copy(update={"gpus_per_node": 1})})
    shape = model_shape(spec.model.source)
    assert shape is not None
    assert estimate_memory(shape, alone).update > ASSUMED_GPU_BYTES
