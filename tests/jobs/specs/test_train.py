import pytest

from exgrpo_core.config import Clipping
from jobs.specs.base import LoraSpec
from jobs.specs.presets import PRESETS_DIR, RENAMED
from jobs.specs.settings import apply_settings
from jobs.specs.train import (
    SpecError,
    TrainSpec,
    dump_spec,
    load_preset,
    load_spec,
    parse_spec,
    preset_description,
    preset_names,
)


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


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("chains-without-question-selection", {"question_selection": "uniform"}),
        ("chains-without-trajectory-selection", {"trajectory_selection": "random"}),
        ("chains-without-shaping", {"shapes_policy": False}),
        ("chains-without-importance-correction", {"corrects_importance": False}),
        ("chains-rho-25", {"experience_ratio": 0.25}),
        ("chains-sigma-1.5", {"bucket_spread": 1.5}),
        ("chains-hard-biased", {"bucket_center": 0.25}),
        ("chains-retired-review", {"review_interval": 25, "review_fraction": 0.1}),
        (
            "chains-released-selection",
            {
                "question_selection": "exgrpo_released",
                "trajectory_selection": "lowest_total_entropy",
                "zero_correct": "keep_bucket",
            },
        ),
    ],
)
def test_variant_differs_from_exgrpo_in_its_own_fields_only(name, changes):
    base = load_preset("chains-exgrpo").model_dump(mode="json")
    variant = load_preset(name).model_dump(mode="json")
    different = {k: v for k, v in variant["algorithm"].items() if v != base["algorithm"][k]}
    assert {k: v for k, v in changes.items() if base["algorithm"][k] != v} == different
    assert {k for k in base if base[k] != variant[k]} == {"algorithm", "name", "preset"}


def test_paper_preset_has_the_papers_numbers():
    spec = load_preset("paper-exgrpo")
    config = spec.algorithm
    assert (spec.num_steps, config.batch_size, config.mini_batch_size, config.rollouts_per_question) == (
        700,
        128,
        64,
        8,
    )
    assert (spec.optim.learning_rate, config.entropy_coefficient, config.start_pass_rate) == (1e-6, 0.001, 0.35)
    assert (config.max_prompt_tokens, config.max_response_tokens, config.temperature) == (1024, 8192, 1.0)
    assert (spec.validation.interval, spec.validation.temperature) == (10, 0.6)
    assert spec.data.requires_think_end
    assert not load_preset("paper-llama-base").data.requires_think_end
    assert load_preset("paper-llama-base").algorithm.start_pass_rate is None


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
def test_each_backbone_has_its_checkpoint_steps_template_and_an_on_policy_baseline(
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


def test_on_policy_baselines_of_the_paper_do_not_clip_and_the_clipped_form_has_a_name_of_its_own():
    baselines = [name for name in preset_names() if name.startswith("paper-") and name.endswith("on-policy")]
    assert len(baselines) == 7
    assert {load_preset(name).algorithm.clipping for name in baselines} == {Clipping.NEVER}
    assert load_preset("paper-on-policy-clip").algorithm.clipping is Clipping.ALWAYS


def test_both_presets_of_llama_say_which_of_them_keeps_the_delayed_start():
    texts = [(PRESETS_DIR / "paper" / f"paper-llama-{kind}.yaml").read_text() for kind in ("base", "instruct")]
    assert all("delayed start" in text and "collapse" in text for text in texts)


def test_continual_luffy_reads_its_trajectories_from_a_column_of_the_data():
    spec = load_preset("paper-continual-luffy")
    assert (spec.external_column, spec.algorithm.uses_external_experience) == ("target", True)
    assert (spec.algorithm.experience_ratio, spec.model.source) == (0.0, "Elliott/LUFFY-Qwen-Math-7B-Zero")


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("paper-")])
def test_presets_of_the_paper_run_on_verl_and_on_the_embedded_engine_where_it_is_asked_for(name):
    spec = load_preset(name)
    assert spec.engine == "verl"
    if spec.reward_model is None:
        assert apply_settings(spec, ["engine=embedded"]).engine == "embedded"


def test_small_preset_of_the_verl_engine_needs_one_gpu():
    spec = load_preset("qwen-0.5b")
    assert (spec.model.source, spec.verl.num_gpus) == ("Qwen/Qwen2.5-0.5B", 1)


def test_file_that_extends_a_preset_holds_only_what_differs(write):
    spec = load_spec(write("extends: chains-exgrpo\nalgorithm: {experience_ratio: 0.25}\n"))
    assert spec.preset == "chains-exgrpo"
    assert spec.algorithm.experience_ratio == 0.25
    assert spec.algorithm.batch_size == load_preset("chains-exgrpo").algorithm.batch_size


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends: chains-exgrpoo\n", "preset: there is no 'chains-exgrpoo'; the nearest is chains-exgrpo,"),
        ("extends: 5\n", "preset: there is no 5"),
        ("algorithm: {experience_ratio: 2}\n", r"algorithm\.experience_ratio: expected a share"),
        ("algorithm: {rho: 0.5}\n", r"algorithm\.rho"),
        ("data: {min_operations: 5, max_operations: 4}\n", r"data\.max_operations"),
        ("data: {template: paper}\n", r"data\.template"),
        ("external_experience: x.jsonl\n", "external_experience"),
        ("external_column: target\n", "external_column: expected"),
        (
            "external_column: target\nexternal_experience: x.jsonl\n"
            "algorithm: {uses_external_experience: true, experience_ratio: 0}\n",
            "and not both",
        ),
        ("name: <b>x</b>\n", "name: expected letters"),
        ("verl: {tensor_parallel: 3}\n", r"verl\.tensor_parallel: expected a divisor of the 8"),
        ("engine: verl\nverl: {attention: eager}\n", r"verl\.attention: expected 'flash' or 'sdpa', got 'eager'"),
        ("engine: verl\nverl: {overrides: [trainer]}\n", r"verl\.overrides\.0: expected KEY=VALUE"),
        ("verl: {overrides: [a=1]}\n", r"verl\.overrides: expected none"),
        ("verl: {ray: {address: 10.0.0.1:8265}}\n", r"verl\.ray\.address: expected an address that begins"),
        ("verl: {ray: {address: 'http://host:abc'}}\n", r"verl\.ray\.address: expected an address that begins"),
        ("verl: {ray: {address: 'http://[::1'}}\n", r"verl\.ray\.address: expected an address that begins"),
        ("{engine: verl, model: {source: a/b, revision: main}}\n", r"model\.revision: expected none"),
        (
            "data: {source: a/b}\nalgorithm: {reward_kind: continuous, start_pass_rate: null}\n",
            "reward_kind: expected binary",
        ),
        (
            "engine: verl\nalgorithm: {reward_kind: continuous, start_pass_rate: null}\n",
            "reward_model: expected one for",
        ),
        (
            "engine: verl\nalgorithm: {reward_kind: continuous, start_pass_rate: null}\nreward_model: {source: a/b}\n",
            "num_held_out, validation.benchmarks: expected 0",
        ),
        ("reward_model: {source: some/model}\n", "reward_model: expected none, except where"),
        ("- a list\n", "expected a mapping"),
        ("a: [1,\n", "is not YAML"),
        ("", "expected a mapping"),
    ],
)
def test_bad_files_are_named_with_the_field_in_one_line(write, text, named):
    with pytest.raises(SpecError, match=named) as caught:
        load_spec(write(text))
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"gone\.yaml: cannot be read"):
        load_spec(tmp_path / "gone.yaml")


def test_unknown_preset_is_told_of_the_nearest():
    with pytest.raises(SpecError, match="there is no 'chains-exgpro'; the nearest is chains-exgrpo, `exgrpo query"):
        load_preset("chains-exgpro")


def test_defaults_are_valid():
    assert parse_spec({}, "form") == TrainSpec()


def test_verl_run_with_a_reward_model_is_read_and_written(write):
    text = (
        "engine: verl\nalgorithm: {reward_kind: continuous, start_pass_rate: null}\nreward_model: {source: a/model}\n"
        "data: {num_held_out: 0}\nvalidation: {num_training_questions: 0}\n"
    )
    spec = load_spec(write(text + "verl: {num_nodes: 2, overrides: ['+trainer.x=[a,b]']}\n"))
    assert spec.verl.num_gpus == 16
    assert spec.verl.ray.address is None
    assert load_spec(write(dump_spec(spec))) == spec


def test_adapters_are_refused_in_fine_tuning_by_verl_and_on_what_is_no_projection():
    adapted = {"engine": "verl", "model": {"source": "a/b", "lora": {}}}
    assert parse_spec(adapted, "test").model.lora == LoraSpec()
    with pytest.raises(SpecError, match=r"model\.lora: expected none in fine-tuning on the verl engine; leave it out"):
        parse_spec(adapted | {"sft": {"source": "demonstrations.jsonl"}}, "test")
    with pytest.raises(SpecError, match="target_modules"):
        parse_spec({"model": {"lora": {"target_modules": ["lm_head"]}}}, "test")


@pytest.mark.parametrize("field", ["optim.learning_rate", "optim.max_gradient_norm", "validation.temperature"])
def test_a_number_that_is_not_finite_is_refused(field):
    section, name = field.split(".")
    with pytest.raises(SpecError, match=rf"{field}: expected a finite number, got inf"):
        parse_spec({section: {name: float("inf")}}, "test")


@pytest.mark.parametrize("field", ["seed", "model.warm_seed", "data.seed", "algorithm.seed"])
def test_a_seed_that_no_generator_takes_is_refused(field):
    *section, name = field.split(".")
    content = {name: 10**30}
    with pytest.raises(SpecError, match=rf"{field}: expected .*9007199254740991, got 10"):
        parse_spec({section[0]: content} if section else content, "test")


@pytest.mark.parametrize("former", RENAMED)
def test_a_preset_is_still_known_by_its_former_name(former, write):
    spec = load_preset(former)
    assert former not in preset_names()
    assert spec.preset == RENAMED[former]
    assert spec.algorithm == load_preset(RENAMED[former]).algorithm
    assert preset_description(former) == preset_description(RENAMED[former])
    path = write("{}")
    path.write_text(f"extends: {former}\n")
    assert load_spec(path).algorithm == spec.algorithm
