import unicodedata

import pytest
from pydantic import ValidationError

from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import (
    SpecError,
    TrainSpec,
    dump_spec,
    load_preset,
    load_spec,
    preset_description,
    preset_names,
)
from exgrpo.jobs.specs.verl import RaySpec
from exgrpo_core.config import Clipping


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_says_what_it_is_and_survives_a_file(name, write):
    spec = load_preset(name)
    assert spec.preset == name
    assert preset_description(name).endswith("."), f"{name}.yaml: begin with a comment, a sentence that describes it."
    assert load_spec(write(dump_spec(spec))) == spec


def test_paper_preset_has_the_papers_numbers():
    spec = load_preset("paper-exgrpo")
    config = spec.algorithm
    assert (config.batch_size, config.mini_batch_size, config.rollouts_per_question) == (128, 64, 8)
    assert (spec.optim.learning_rate, config.entropy_coefficient) == (1e-6, 0.001)
    assert (config.max_prompt_tokens, config.max_response_tokens, config.temperature) == (1024, 8192, 1.0)
    assert (spec.validation.interval, spec.validation.temperature) == (10, 0.6)
    assert spec.data.requires_think_end
    assert not load_preset("paper-llama-base").data.requires_think_end


@pytest.mark.parametrize(
    ("name", "num_steps", "model", "template", "start"),
    [
        ("paper-exgrpo", 700, "Elliott/Qwen2.5-Math-7B-16k-think", "paper", 0.35),
        ("paper-qwen2.5-math-1.5b", 500, "RoadQAQ/Qwen2.5-Math-1.5B-16k-think", "paper", 0.35),
        ("paper-qwen2.5-7b-instruct", 500, "Qwen/Qwen2.5-7B-Instruct", "paper", 0.35),
        ("paper-llama-base", 500, "meta-llama/Llama-3.1-8B", "paper_llama_base", None),
        ("paper-llama-instruct", 500, "meta-llama/Llama-3.1-8B-Instruct", "paper", 0.35),
        ("paper-luffy-continual", 500, "Elliott/LUFFY-Qwen-Math-7B-Zero", "paper", 0.35),
        ("paper-wildchat-if", 110, "Qwen/Qwen2.5-7B", "chat", None),
    ],
)
def test_each_backbone_has_its_checkpoint_steps_template_and_an_on_policy_baseline_without_clipping(
    name, num_steps, model, template, start
):
    spec = load_preset(name)
    baseline = load_preset("paper-on-policy" if name == "paper-exgrpo" else f"{name}-on-policy")
    for each in (spec, baseline):
        assert (each.num_steps, each.model.source, each.data.template) == (num_steps, model, template)
        assert each.algorithm.batch_size == 128
        assert each.algorithm.start_pass_rate == start
    assert spec.algorithm.replays_experience
    assert not baseline.algorithm.replays_experience
    assert baseline.algorithm.clipping is Clipping.NEVER
    assert load_preset("paper-on-policy-clip").algorithm.clipping is Clipping.ALWAYS


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("paper-")])
def test_presets_of_the_paper_run_on_verl_and_on_the_embedded_engine_where_it_is_asked_for(name):
    spec = load_preset(name)
    assert spec.engine == ("embedded" if spec.sft else "verl")
    if spec.reward_model is None:
        assert apply_settings(spec, ["engine=embedded"]).engine == "embedded"


def test_file_that_extends_a_preset_holds_only_what_differs(write):
    spec = load_spec(write("extends: chains-exgrpo\nalgorithm: {experience_ratio: 0.25}\n"))
    assert spec.preset == "chains-exgrpo"
    assert spec.algorithm.experience_ratio == 0.25
    assert spec.algorithm.batch_size == load_preset("chains-exgrpo").algorithm.batch_size


CONTINUOUS = "algorithm: {reward_kind: continuous, start_pass_rate: null}\n"
AHEAD = "algorithm: {rollouts_ahead: true, sampler_correction: reject}\n"
EXTERNAL = ("external_experience", "external_column")
COUNTED = ("validation.num_training_questions", "data.num_held_out", "validation.benchmarks")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("extends: chains-exgrpoo\n", ("preset",)),
        ("extends: 5\n", ("preset",)),
        ("algorithm: {rho: 0.5}\n", ("algorithm.rho",)),
        ("external_experience: x.jsonl\n", EXTERNAL),
        ("external_column: target\n", EXTERNAL),
        (
            "external_column: target\nexternal_experience: x.jsonl\n"
            "algorithm: {uses_external_experience: true, experience_ratio: 0}\n",
            EXTERNAL,
        ),
        ("name: <b>x</b>\n", ("name",)),
        ("verl: {tensor_parallel: 3}\n", ("verl.tensor_parallel",)),
        ("engine: verl\nverl: {attention: eager}\n", ("verl.attention",)),
        ("engine: verl\nverl: {overrides: [trainer]}\n", ("verl.overrides.0",)),
        ("verl: {overrides: [a=1]}\n", ("verl.overrides",)),
        ("verl: {ray: {address: 10.0.0.1:8265}}\n", ("verl.ray.address",)),
        ("{engine: verl, model: {source: a/b, revision: main}}\n", ("model.revision",)),
        (f"data: {{source: a/b}}\nmodel: {{source: a/b}}\n{CONTINUOUS}", ("algorithm.reward_kind",)),
        ("engine: verl\nalgorithm: {rollouts_ahead: true}\n", ("algorithm.sampler_correction",)),
        (AHEAD, ("algorithm.rollouts_ahead",)),
        ("engine: verl\nmax_generated_tokens: 1000\n", ("max_generated_tokens",)),
        ("sft: {}\nalgorithm: {experience_ratio: 0}\nmax_generated_tokens: 1000\n", ("max_generated_tokens",)),
        ("engine: verl\nsft: {}\nalgorithm: {experience_ratio: 0}\n", ("engine",)),
        ("max_generated_tokens: 0\n", ("max_generated_tokens",)),
        ("engine: verl\nverl: {generating_gpus_per_node: 2}\n", ("verl.generating_gpus_per_node",)),
        (
            f"engine: verl\nverl: {{tensor_parallel: 2, generating_gpus_per_node: 3}}\n{AHEAD}",
            ("verl.tensor_parallel", "verl.generating_gpus_per_node"),
        ),
        ("algorithm: {batch_size: 1024}\n", ("algorithm.batch_size", "data.num_questions")),
        (f"engine: verl\n{CONTINUOUS}", ("reward_model",)),
        (f"engine: verl\n{CONTINUOUS}reward_model: {{source: a/b}}\n", COUNTED),
        ("reward_model: {source: some/model}\n", ("reward_model",)),
        ("optim: {learning_rate: .inf}\n", ("optim.learning_rate",)),
        ("seed: 1000000000000000000000\n", ("seed",)),
        ("model: {lora: {target_modules: [lm_head]}}\n", ("model.lora.target_modules.0",)),
        ("- a list\n", ()),
        ("a: [1,\n", ()),
        ("optim: {learning_rate: 1e-6}\noptim: {weight_decay: 0}\n", ()),
        ('{"seed": 1, "algorithm": {"seed": 1, "seed": 2}}', ()),
        ("", ()),
    ],
)
def test_bad_files_are_refused_by_field_in_one_line(write, text, fields):
    with pytest.raises(SpecError) as refused:
        load_spec(write(text))
    assert refused.value.mistakes[0].fields == fields
    assert "\n" not in str(refused.value)


def test_missing_file_is_refused_and_an_unknown_preset_with_the_nearest(tmp_path):
    with pytest.raises(SpecError):
        load_spec(tmp_path / "gone.yaml")
    with pytest.raises(SpecError, match="the nearest is chains-exgrpo,"):
        load_preset("chains-exgpro")


def test_verl_run_with_a_reward_model_is_read_and_written(write):
    text = (
        "engine: verl\nalgorithm: {reward_kind: continuous, start_pass_rate: null}\nreward_model: {source: a/model}\n"
        "data: {num_held_out: 0}\nvalidation: {num_training_questions: 0}\n"
    )
    spec = load_spec(write(text + "verl: {num_nodes: 2, overrides: ['+trainer.x=[a,b]']}\n"))
    assert spec.verl.num_gpus == 16
    assert spec.verl.ray.address is None
    assert RaySpec(address="https://ray.example.org").address == "https://ray.example.org"
    assert load_spec(write(dump_spec(spec))) == spec


@pytest.mark.parametrize("address", ["http://ray:0", "http://ray:70000", "http://:8265", "ray:8265"])
def test_an_address_is_asked_for_a_port_only_if_it_has_one(address):
    assert RaySpec(address="http://ray").address == "http://ray"
    with pytest.raises(ValueError, match="a host and, if it has one, a port from 1 to 65535"):
        RaySpec(address=address)


@pytest.mark.parametrize("name", ["Größe", "実験 7", "परीक्षण", "тест@last", "e\u0301tude"])
def test_a_name_has_letters_of_any_script_in_composed_form(name):
    assert TrainSpec(name=name).name == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize("name", ["", "a=b", "a/b", "-a", "a\n", "a\u202eb", "\u0301a", "ä" * 81, "\ud800"])
def test_a_name_of_other_signs_is_refused_with_what_is_allowed(name):
    with pytest.raises(ValidationError, match="letters and digits of any script"):
        TrainSpec(name=name)
