import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from exgrpo.jobs.training.engines.embedded.model import load_policy, refuse_odd_files, wrap_model
from exgrpo_core.errors import EngineError
from tests.jobs.actions.preflight.test_data_preview import PANICS
from tests.jobs.training.engines.tiny_models import END, VOCABULARY_SIZE, build_model, tiny_tokenizer

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    build_model("qwen2_tied").bfloat16().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_of_half_precision_loads_as_a_packed_float32_policy(folder):
    policy = load_policy(str(folder), CPU)
    assert len(policy.tokenizer) == VOCABULARY_SIZE
    assert policy.tokenizer.encode("12a+") == tiny_tokenizer().encode("12a+")
    assert policy.is_packed
    assert policy.context_tokens == 128
    assert policy.end_token_ids.tolist() == [END]
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    assert not policy.model.training
    refuse_odd_files(str(folder))


def test_a_missing_model_and_pickled_weights_are_refused_by_name(folder):
    with pytest.raises(EngineError, match=r"model.source: .*nowhere"):
        load_policy(str(folder / "nowhere"), CPU)
    (folder / "model.safetensors").unlink()
    torch.save(build_model("qwen2_tied").state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(EngineError, match=r"model\.source"):
        load_policy(str(folder), CPU)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\x10\x00"), ("config.json", b'{"model_type": {}}'),
        ("generation_config.json", b'{"pad_token_id": {}}'), ("tokenizer.json", PANICS),
        ("tokenizer_config.json", b'{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": []}'),
    ],
)  # fmt: skip
def test_a_damaged_file_of_a_model_is_one_sentence(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(EngineError, match=r"model\.source: .*"):
        load_policy(str(folder), CPU)


@pytest.mark.parametrize(
    ("rename", "num_layers", "named"),
    [
        (lambda name: name.replace("lm_head", "score"), 3, r"lm_head\.weight"),  # a reward model
        (lambda name: f"_orig_mod.{name}", 3, r"lm_head\.weight"),  # saved from torch.compile
        (lambda name: name.replace("layers.1.mlp", "layers.1.other"), 3, r"layers\.1\.mlp"),
        (str, 4, r"layers\.3\."),
        (str, 2, r"layers\.2\."),
    ],
)
def test_weights_that_are_not_those_of_the_configuration_are_refused_by_name(tmp_path, rename, num_layers, named):
    build_model("qwen2_untied").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    weights = {rename(name): value for name, value in load_file(tmp_path / "model.safetensors").items()}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    edit_json(tmp_path / "config.json", num_hidden_layers=num_layers, layer_types=["full_attention"] * num_layers)
    for look in (lambda: load_policy(str(tmp_path), CPU), lambda: refuse_odd_files(str(tmp_path))):
        with pytest.raises(EngineError, match=named):
            look()


@pytest.mark.parametrize(
    ("change", "named"),
    [({"vocab_size": 5}, "embed_tokens.weight: expected [5, "), ({"intermediate_size": 3}, "weight: expected [")],
)
def test_weights_of_other_sizes_than_the_configuration_says_are_refused_by_name(folder, change, named):
    edit_json(folder / "config.json", **change)
    with pytest.raises(EngineError, match=re.escape(named)):
        load_policy(str(folder), CPU)


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for path in (*folder.glob("*token*"), *folder.glob("vocab*"), *folder.glob("merges*")):
        path.unlink()
    with pytest.raises(EngineError, match=r"has no tokenizer; put its files, such as tokenizer.json, into the folder."):
        load_policy(str(folder), CPU)


def test_a_tokenizer_larger_than_the_model_is_refused(folder):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["new"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(EngineError, match=f"has {VOCABULARY_SIZE + 1} tokens but the model only {VOCABULARY_SIZE}"):
        load_policy(str(folder), CPU)


def test_a_model_that_nothing_ends_is_refused():
    model = build_model("qwen2_tied")
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizer().backend_tokenizer, pad_token="<pad>")
    with pytest.raises(EngineError, match="end-of-sequence"):
        wrap_model(model, tokenizer, CPU)


def test_end_tokens_of_generation_config_count_too():
    model = build_model("qwen2_tied")
    model.generation_config.eos_token_id = [4, 7]
    assert wrap_model(model, tiny_tokenizer(), CPU).end_token_ids.tolist() == [END, 4, 7]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer_types", ["full_attention", "sliding_attention", "full_attention"]),
        ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}),
    ],
)
def test_sliding_attention_and_changing_rope_go_through_the_model_s_own_forward(name, value):
    model = build_model("qwen2_tied")
    assert wrap_model(model, tiny_tokenizer(), CPU).is_packed
    setattr(model.config, name, value)
    assert not wrap_model(model, tiny_tokenizer(), CPU).is_packed


def test_a_path_that_is_not_there_is_named_as_no_folder():
    with pytest.raises(
        EngineError, match="gone/with/model is no folder here and cannot be loaded as a causal language"
    ):
        load_policy("gone/with/model", torch.device("cpu"))
