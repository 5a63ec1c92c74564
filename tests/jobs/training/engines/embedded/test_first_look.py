import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, FalconMambaConfig, Mamba2Config, MambaConfig, RwkvConfig

from exgrpo.jobs.training.engines.embedded.first_look import look_at, look_without_weights, open_model
from exgrpo.jobs.training.engines.embedded.model import refuse_odd_files, wrap_model
from exgrpo_core.errors import EngineError
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model
from tests.jobs.training.engines.tiny_models import END, VOCABULARY_SIZE, build_model, build_policy, tiny_tokenizer

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": VOCABULARY_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": END}


def tiny(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0 if weight.ndim > 1 else 1.0)
    return wrap_model(model, tiny_tokenizer(), torch.device("cpu"))


@pytest.mark.parametrize("name", ["qwen2_tied", "llama", "gpt2"])
def test_a_model_that_generates_what_it_scores_passes(name):
    assert look_at(build_policy(name)) < 1e-4


@pytest.mark.parametrize(
    "config", [MambaConfig(**SIZES), FalconMambaConfig(**SIZES), RwkvConfig(**SIZES)], ids=lambda item: item.model_type
)
def test_a_model_that_generates_without_memory_is_refused_by_type_and_gap(config):
    with pytest.raises(EngineError, match=rf"a {config.model_type} model .*mean gap \d"):
        look_at(tiny(config))


@pytest.mark.parametrize("shift", [1, -1, "reversed"])
def test_a_model_that_counts_positions_its_own_way_is_refused(shift, monkeypatch):
    """As Kosmos-2.5: batches agree with each other, but with the positions that it is given it is another model."""
    policy = build_policy("gpt2")
    forward = policy.model.forward
    changed = {"reversed": lambda ids: ids.flip(-1), "constant": torch.zeros_like}
    change = changed.get(shift, lambda ids: (ids + shift).clamp(min=0))

    def other(position_ids=None, **given):
        return forward(position_ids=None if position_ids is None else change(position_ids), **given)

    monkeypatch.setattr(policy.model, "forward", other)
    with pytest.raises(EngineError, match="counts positions its own way"):
        look_at(policy)


def test_a_model_that_cannot_generate_is_refused_in_a_sentence():
    config = Mamba2Config(**SIZES, num_heads=8, head_dim=8, n_groups=2)
    with pytest.raises(EngineError, match=r"mamba2 model"):
        look_at(tiny(config))


def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path):
    model = build_model("qwen2_tied")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(EngineError, match=r"layers\.1\.mlp\.up_proj"):
        open_model(str(tmp_path), "cpu")


def test_a_configuration_that_cannot_be_saved_is_refused_before_the_start():
    policy = build_policy("llama")
    policy.model.config.note = {object()}
    with pytest.raises(EngineError, match="could not be saved"):
        look_at(policy)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is not JSON"), ("", "is not JSON"), ("[1]", "expected a mapping of fields"),
        ('"x"', "expected a mapping of fields"), ('{"a": {"b": 1, "b": 2}}', "has the field 'b' twice"),
    ],
)  # fmt: skip
def test_a_broken_settings_file_is_named(tmp_path, name, content, fault):
    save_tiny_model(tmp_path)
    (tmp_path / name).write_text(content)
    sentence = rf"{re.escape(str(tmp_path / name))}: {fault}.*; put the model's own {name} in its place\.$"
    for read in (lambda source: open_model(source, "cpu"), look_without_weights, refuse_odd_files):
        with pytest.raises(EngineError, match=sentence):
            read(str(tmp_path))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool])
def test_weights_that_are_whole_numbers_are_refused(tmp_path, dtype):
    path = save_tiny_model(tmp_path) / "model.safetensors"
    weights = load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(weights | {name: (100 * weights[name]).to(dtype)}, path, {"format": "pt"})
    with pytest.raises(
        EngineError, match=rf"model\.safetensors has weights that are whole numbers \({re.escape(name)}"
    ):
        open_model(str(tmp_path), "cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_in_any_floats_are_opened(tmp_path, dtype):
    path = save_tiny_model(tmp_path) / "model.safetensors"
    save_file({name: weight.to(dtype) for name, weight in load_file(path).items()}, path, {"format": "pt"})
    open_model(str(tmp_path), "cpu")
