import json

import pytest

from exgrpo.jobs.actions.preflight.looks import check_context, look_at
from exgrpo.jobs.specs.base import LoraSpec
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec, preset_names
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape, _shape_of, model_shape
from exgrpo.jobs.training.warm_start import WarmStartSettings, make_small_policy

pytestmark = pytest.mark.slow

TINY = ModelShape(
    hidden=4, intermediate=8, layers=2, heads=2, kv_heads=1, vocabulary=10, is_tied=True, context=32
)  # fmt: skip


def with_model(source: str, engine: str = "embedded", **algorithm: int) -> TrainSpec:
    content = {"data": {"source": "x.parquet", "template": "paper"}, "model": {"source": source}, "engine": engine}
    return parse_spec(content | {"algorithm": algorithm}, "test")


def test_parameters_and_adapters_are_counted_by_hand():
    assert TINY.layer_parameters == 2 * 4 * 2 * 3 + 3 * 4 * 8 + 2 * 4
    assert TINY.parameters == 10 * 4 + 2 * 152 + 4
    assert TINY.cache_values_per_token == 2 * 2 * 1 * 2
    lora = LoraSpec(rank=3, target_modules=("k_proj", "down_proj"))
    # Keys: 4 inputs and 1 head of 2; down: 8 inputs and 4 outputs.
    assert TINY.adapter_parameters(lora) == 2 * 3 * ((4 + 2) + (8 + 4))
    model = TrainSpec().model.model_copy(update={"lora": lora})
    assert (TINY.trained_parameters(model), TINY.trained_parameters(TrainSpec().model)) == (108, TINY.parameters)


@pytest.mark.parametrize(("source", "billions"), [("Qwen/Qwen2.5-0.5B", 0.494), ("meta-llama/Llama-3.1-8B", 8.030)])
def test_the_tables_shapes_have_the_models_published_sizes(source, billions):
    shape = model_shape(source)
    assert shape is not None
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.001)


def test_models_that_are_made_here_have_the_tables_sizes():
    chains = WarmStartSettings()
    policy = make_small_policy(make_tokenizer(), chains.num_layers, chains.width, chains.num_heads, seed=0)
    assert _shape_of(policy.model.config.to_dict() | {"head_dim": None}) == model_shape("chains-warm")


def test_a_local_folder_is_read_from_its_config(tmp_path):
    config = {
        "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 10, "tie_word_embeddings": True, "max_position_embeddings": 32,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_shape(str(tmp_path)) == TINY


SIZES = {
    "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096},
        {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 4096}},
        {"rope_parameters": {"rope_type": "longrope"}, "original_max_position_embeddings": 4096},
        {"rope_parameters": {"full": {"rope_type": "longrope", "original_max_position_embeddings": 4096}}},
    ],
)
@pytest.mark.parametrize("engine", ["embedded", "verl"])
def test_longrope_whose_border_a_response_could_cross_is_refused_by_name(tmp_path, rope, engine):
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "max_position_embeddings": 131072, **rope}))
    with pytest.raises(SpecError, match=r"has longrope, .* to 4,096 in all"):
        check_context(look_at(with_model(str(tmp_path), engine=engine, max_response_tokens=4096)))
    check_context(look_at(with_model(str(tmp_path), engine=engine, max_response_tokens=3072)))


def test_dynamic_rope_is_refused_for_verl_alone_whose_sampler_scales_otherwise(tmp_path):
    rope = {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 8192}
    (tmp_path / "config.json").write_text(json.dumps(SIZES | rope))
    check_context(look_at(with_model(str(tmp_path), max_response_tokens=3072)))
    with pytest.raises(SpecError, match="dynamic rope"):
        check_context(look_at(with_model(str(tmp_path), engine="verl", max_response_tokens=3072)))


def test_a_model_of_images_and_text_has_the_sizes_of_its_text_part(tmp_path):
    sizes = {**SIZES, "num_key_value_heads": 1, "max_position_embeddings": 32}
    whole = {"tie_word_embeddings": True, "text_config": sizes, "vision_config": {"hidden_size": 7}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert model_shape(str(tmp_path)) == TINY


@pytest.mark.parametrize(
    "config",
    ['{"hidden_size": 64, "num_attention_heads": 0}', '{"hidden_size": "64"}', '{"head_dim": -1}', "[" * 200_000, "[]"],
)
def test_an_odd_configuration_is_refused_in_one_sentence_and_has_no_shape(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    assert model_shape(str(tmp_path)) is None
    with pytest.raises(SpecError) as refused:
        check_context(look_at(with_model(str(tmp_path))))
    assert refused.value.fields == ("model.source",)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith(("paper-", "qwen-"))])
def test_every_papers_preset_fits_into_its_models_context(name):
    spec = load_preset(name)
    assert model_shape(spec.model.source) is not None
    check_context(look_at(spec))


def test_a_context_that_is_too_short_names_the_checkpoint_that_is_not():
    with pytest.raises(SpecError, match=r"Elliott/Qwen2\.5-Math-7B-16k-think"):
        check_context(look_at(with_model("Qwen/Qwen2.5-Math-7B")))
    check_context(look_at(with_model("Qwen/Qwen2.5-Math-7B", max_response_tokens=3072)))
