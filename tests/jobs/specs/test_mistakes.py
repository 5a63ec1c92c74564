import pytest

from exgrpo.jobs.specs.any_job import parse_any_spec
from exgrpo.jobs.specs.base import SpecError
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, load_spec, parse_spec


def mistakes(content):
    with pytest.raises(SpecError) as refused:
        parse_spec(content, "form")
    return {mistake.fields: mistake for mistake in refused.value.mistakes}


def test_mistakes_of_fields_and_of_rules_over_several_are_told_at_once():
    by_fields = mistakes(
        {
            "num_steps": "abc", "algorithm": {"mini_batch_size": 5, "bucket_spread": 0.0},
            "data": {"min_operations": 9, "max_operations": 3, "template": "paper"}, "optim": {"learning_rate": 0.0},
        },
    )  # fmt: skip
    assert by_fields.keys() == {
        ("num_steps",), ("algorithm.mini_batch_size",), ("algorithm.bucket_spread",), ("optim.learning_rate",),
        ("data.max_operations",), ("data.template",),
    }  # fmt: skip
    assert by_fields["num_steps",] == "num_steps: expected a whole number, got 'abc'"


def test_several_mistakes_are_one_message_of_sentences():
    with pytest.raises(SpecError) as refused:
        parse_spec({"num_steps": 0, "algorithm": {"bucket_spread": 0.0}, "checkpoint_interval": -4}, "form")
    assert str(refused.value) == (
        "form: algorithm.bucket_spread: expected a finite number above 0, got 0.0. num_steps: expected at least 1, "
        "got 0. checkpoint_interval: expected at least 1, got -4"
    )


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({"data": {"min_operations": "many", "max_operations": 2}}, ("data.min_operations",)),
        ({"sft": {}}, ("algorithm.experience_ratio", "algorithm.uses_external_experience")),
    ],
)
def test_rule_that_a_wrong_field_has_a_part_in_waits_until_that_is_mended_and_names_all_its_fields(content, fields):
    assert mistakes(content).keys() == {fields}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", True), ("optim.learning_rate", True), ("algorithm.experience_ratio", False),
        ("data.num_held_out", True),
    ],
)  # fmt: skip
def test_true_and_false_are_no_numbers(field, value):
    section, _, name = field.rpartition(".")
    content = {section: {name: value}} if section else {name: value}
    assert mistakes(content).keys() == {(field,)}


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("algorithm.batch_sise", "did you mean algorithm.batch_size?"), ("model.soruce", "did you mean model.source?"),
        ("nmae", "did you mean name?"), ("experience_ration", "did you mean algorithm.experience_ratio?"),
        ("algorithm.lerning_rate", "did you mean optim.learning_rate?"), ("data.zzzz", "the nearest is data."),
    ],
)  # fmt: skip
def test_a_file_answers_a_misspelt_field_as_a_setting_does(field, hint):
    section, _, name = field.rpartition(".")
    with pytest.raises(SpecError) as of_file:
        parse_spec({section: {name: 32}} if section else {name: 32}, "--set")
    with pytest.raises(SpecError) as of_setting:
        apply_settings(TrainSpec(), [f"{field}=32"])
    assert str(of_file.value).replace("--set: ", "--set ") == str(of_setting.value)
    assert f"{field}: there is no such field; {hint}" in str(of_file.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            {"algorithm": {"mask_range": {"lw": 0.5}}},
            "mask_range.lw: there is no such field; did you mean algorithm.ma",
        ),
        (
            {"kind": "eval", "model": {"sorce": "x"}},
            "did you mean model.source? benchmarks: expected a value, got none",
        ),
        ({"model": {1: 2}}, "model.1: expected a text as the name, got 1"),
        ({"data": {"modulus": 10**30}}, f"data.modulus: expected a smaller whole number, got {10**30}"),
    ],
)
def test_no_mistake_is_in_the_words_of_the_library(content, sentence):
    with pytest.raises(SpecError) as refused:
        parse_any_spec(content, "run.yaml")
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ["folder", "/dev/null"])
def test_a_folder_or_device_instead_of_a_file_is_not_to_be_removed(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match=r"found a folder, pipe or device; give a YAML or JSON file\.$"):
        load_spec(tmp_path / name)
