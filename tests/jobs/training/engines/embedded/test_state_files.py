import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from exgrpo.jobs.training.engines.embedded.state_files import COUNTERS_FILE, OPTIMIZER_FILE, SAMPLER_FILE
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.errors import EngineError
from exgrpo_core.state import ExGRPOState
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine, make_questions

pytestmark = pytest.mark.slow

NUM_STEPS = 3


def run_steps(state, engine, num_steps):
    return [exgrpo_step(state, engine, CONFIG) for _ in range(num_steps)]


def test_what_is_saved_loads_as_a_plain_model_without_pickles(tmp_path):
    engine = make_engine("llama")
    engine.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    for one, other in zip(model.parameters(), engine.policy.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert AutoTokenizer.from_pretrained(tmp_path).decode([2, 3, 1], skip_special_tokens=True) == "01"
    assert not [path for path in tmp_path.iterdir() if path.suffix in {".bin", ".pt", ".pth", ".pkl"}]


def test_tied_weights_stay_tied_after_a_restore(tmp_path):
    engine = make_engine("qwen2_tied")
    engine.save(tmp_path)
    engine.restore(tmp_path)
    model = engine.policy.model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_a_missing_file_and_the_state_of_another_model_are_refused(tmp_path):
    engine = make_engine("qwen2_untied")
    engine.save(tmp_path)
    with pytest.raises(EngineError, match=str(tmp_path)):
        make_engine("llama").restore(tmp_path)
    (tmp_path / OPTIMIZER_FILE).unlink()
    with pytest.raises(EngineError, match=str(tmp_path)):
        engine.restore(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (OPTIMIZER_FILE, lambda held: dict([*held.items()][1:])),
        (OPTIMIZER_FILE, lambda held: {f"foreign.{key}": value for key, value in held.items()}),
        (OPTIMIZER_FILE, lambda held: {key: torch.zeros(2) for key in held}),
        (OPTIMIZER_FILE, lambda held: {key: value.int() for key, value in held.items()}),
        (SAMPLER_FILE, lambda _held: {"state": torch.zeros(3)}),
    ],
    ids=["missing", "foreign", "shape", "type", "sampler"],
)
def test_forged_states_are_refused_with_the_folder(tmp_path, name, change):
    engine = make_engine()
    run_steps(ExGRPOState.create(tmp_path / "segments", make_questions(), CONFIG), engine, 1)
    engine.save(tmp_path / "policy")
    path = tmp_path / "policy" / name
    save_file(change(load_file(path)), path)
    with pytest.raises(EngineError, match=f"{tmp_path}/policy: "):
        engine.restore(tmp_path / "policy")


@pytest.mark.parametrize("content", ["{}", '{"num_optimizer_steps": -1}'])
def test_forged_counters_are_refused_with_the_folder(tmp_path, content):
    engine = make_engine()
    engine.save(tmp_path)
    (tmp_path / COUNTERS_FILE).write_text(content)
    with pytest.raises(EngineError, match=f"{tmp_path}: "):
        engine.restore(tmp_path)


def scale(folder):
    """Write quantized weights without their scales, as a model in blocks of FP8 would be."""
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value * (40 if value.ndim > 1 else 1) for name, value in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )


def drop(folder):
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.0.mlp.gate_proj.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def reconfigure(**fields):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | fields))

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (scale, "is another model"),
        (drop, "cannot be loaded again"),
        (reconfigure(hidden_act="tanh"), "is another model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"cut"), "cannot be loaded again"),
    ],
)
def test_first_checkpoint_that_is_another_model_is_refused_by_name(tmp_path, monkeypatch, change, sentence):
    engine = make_engine("qwen2_untied")
    save = type(engine.policy.model).save_pretrained

    def save_otherwise(model, folder, **options):
        save(model, folder, **options)
        change(folder)

    monkeypatch.setattr(type(engine.policy.model), "save_pretrained", save_otherwise)
    with pytest.raises(EngineError, match=f"memory cannot be trained: its checkpoint {sentence}"):
        engine.save(tmp_path)


@pytest.mark.parametrize("architecture", ["qwen2_tied", "qwen2_untied", "qwen2_tied+lora"])
def test_first_checkpoint_that_is_the_model_is_kept_and_no_random_number_is_drawn(tmp_path, architecture):
    engine, before = make_engine(architecture), torch.random.get_rng_state()
    engine.save(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
