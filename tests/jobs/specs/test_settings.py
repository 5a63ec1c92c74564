import math
import time

import pytest
import yaml

from exgrpo.jobs.specs.presets import MAX_YAML_BYTES, load_plain_yaml
from exgrpo.jobs.specs.settings import apply_settings, full_path
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_spec


def test_values_are_read_as_yaml_and_an_exponent_without_a_point_is_a_number():
    settings = ["algorithm.experience_ratio=0.25", "validation.interval=null", "name=my run"]
    spec = apply_settings(TrainSpec(), [*settings, "optim.learning_rate=2e-4"])
    assert (spec.algorithm.experience_ratio, spec.validation.interval, spec.name) == (0.25, None, "my run")
    assert spec.optim.learning_rate == 2e-4


def test_mapping_sets_a_field_that_is_null():
    setting = "algorithm.mask_range={low: 0.25, high: 0.75, includes_low: false, includes_high: true}"
    spec = apply_settings(TrainSpec(), ["algorithm.experience_ratio=0", setting])
    assert spec.algorithm.mask_range is not None
    assert spec.algorithm.mask_range.high == 0.75


@pytest.mark.parametrize(
    "name", ["algorithm.strategy_settings.moment_limit", "strategy_settings.moment_limit", "moment_limit"]
)
def test_a_setting_that_only_the_chosen_method_knows_is_set_by_its_name(name):
    spec = apply_settings(TrainSpec(), ["algorithm.off_policy_correction=m2po", f"{name}=0.25"])
    assert spec.algorithm.strategy_settings == {"moment_limit": 0.25}
    assert apply_settings(spec, [f"{name}=0.5"]).algorithm.strategy_settings == {"moment_limit": 0.5}


def test_a_setting_outside_of_the_range_of_a_method_of_ones_own_is_refused_with_its_name(monkeypatch):
    monkeypatch.setenv("EXGRPO_ALLOWED_CODE", "tests")
    method = "algorithm.trajectory_selection=tests.exgrpo_core.methods.outside_rules:Shortest"
    with pytest.raises(SpecError) as refused:
        apply_settings(TrainSpec(), [method, "least_tokens=-1"])
    expected = "algorithm.strategy_settings.least_tokens: expected a number of at least 0, got -1.0."
    assert str(refused.value) == f"--set: {expected}"


def test_a_setting_that_no_chosen_method_knows_is_refused_with_those_there_are():
    method = "algorithm.off_policy_correction=m2po"
    with pytest.raises(SpecError, match=r"no setting more; expected one of moment_limit\.$"):
        apply_settings(TrainSpec(), [method, "algorithm.strategy_settings.more=2"])
    with pytest.raises(SpecError, match=r"did you mean algorithm.strategy_settings.moment_limit\?"):
        apply_settings(TrainSpec(), [method, "algorithm.moment_limit=2"])
    no_field = "^--set moment_limit: there is no such field"
    no_code = "^--set algorithm.question_selection: .*EXGRPO_ALLOWED_CODE"
    for before, why in ([], no_field), (["algorithm=5"], no_field), (["algorithm.question_selection=a:B"], no_code):
        with pytest.raises(SpecError, match=why):
            apply_settings(TrainSpec(), [*before, "moment_limit=0.25"])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mu", "algorithm.bucket_center"), ("\u03c1", "algorithm.experience_ratio"),
        ("K", "algorithm.rollouts_per_question"), ("Bucket center", "algorithm.bucket_center"),
        ("bucket_spread", "algorithm.bucket_spread"), ("seed", "seed"), ("source", "source"), ("x.mu", "x.mu"),
    ],
)  # fmt: skip
def test_a_field_has_the_names_that_pages_show_where_only_one_has_them(name, path):
    assert full_path(TrainSpec().model_dump(mode="json"), name) == path


def test_word_without_equals_sign_is_refused():
    with pytest.raises(SpecError):
        apply_settings(TrainSpec(), ["num_steps"])


def merged(num_levels: int) -> str:
    """Return YAML that grows sevenfold with each level, of 293 characters for ten."""
    levels = [f"&{chr(97 + i)} [{','.join(['*' + chr(96 + i)] * 7)}]" for i in range(1, num_levels)]
    return f"[&a [1,1,1,1,1,1,1],{','.join(levels)}]"


@pytest.mark.parametrize("text", [merged(10), "&a 1", "{<<: &b {x: 1}}", "[&c [], *c]", "x" * (MAX_YAML_BYTES + 1)])
def test_yaml_of_users_that_could_grow_is_refused_before_it_does(text, tmp_path):
    with pytest.raises(SpecError):
        apply_settings(TrainSpec(), [f"tags={text}"])
    path = tmp_path / "run.yaml"
    path.write_text(f"tags: {text}")
    began_at = time.process_time()
    with pytest.raises(SpecError):
        load_spec(path)
    assert time.process_time() - began_at < 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30", "12:30"), ("0x10", "0x10"), ("010", "010"), ("on", "on"), ("y", "y"), ("2026-01-01", "2026-01-01"),
        ("1e-6", "1e-6"), ("=", "="), ("1_000", 1000), ("-7", -7), (".5", 0.5), ("-.inf", -math.inf),
        ("False", False), ("~", None), ("", None), ('"010"', "010"), ("[1, no]", [1, "no"]),
    ],
)  # fmt: skip
def test_yaml_holds_what_people_write_and_what_is_dumped(text, value):
    assert load_plain_yaml(f"a: {text}", "")["a"] == value
    assert load_plain_yaml(yaml.safe_dump({"a": value}), "") == {"a": value}


@pytest.mark.parametrize(
    "text", ["190:20:30.15x", "[" * 3000, "2026-99-99", "!!python/name:os.system", "\x00", r'"\UFFFFFFFF"']
)
def test_odd_yaml_is_one_sentence(text):
    with pytest.raises(SpecError) as refused:
        load_plain_yaml(f"a: {text}\nb: [", "run.yaml")
    assert "\n" not in str(refused.value)
    assert "string>" not in str(refused.value)  # the library's words


def test_a_number_of_thousands_of_digits_and_a_name_that_appears_twice_are_named_with_their_place():
    with pytest.raises(SpecError, match=r"^run.yaml: line 2, column 4: has a number of thousands of digits; write a s"):
        load_plain_yaml("a: 1\nb: " + "1" * 5000, "run.yaml")
    with pytest.raises(SpecError, match=r"^run.yaml: line 2, column 1: a appears twice; keep one of them\.$"):
        load_plain_yaml("a: 1\na: 2", "run.yaml")


@pytest.mark.parametrize("text", ["name: Müller".encode("latin-1"), "name: \0"])
def test_text_of_another_encoding_says_where_and_that_it_has_to_be_utf_8(text):
    with pytest.raises(SpecError, match=r"run.yaml: position \d: .* UTF-8"):
        load_plain_yaml(text, "run.yaml")


@pytest.mark.parametrize("text", ["{[a]: 1}", "? {a: 1}\n: 2"])
def test_a_name_that_is_no_text_is_refused(text):
    with pytest.raises(SpecError):
        load_plain_yaml(text, "run.yaml")
