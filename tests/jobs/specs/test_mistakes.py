import pytest

from exgrpo.jobs.specs.mistakes import SpecError
from exgrpo.jobs.specs.train import parse_spec


def mistakes(content):
    with pytest.raises(SpecError) as refused:
        parse_spec(content, "form")
    return {mistake.fields: mistake for mistake in refused.value.mistakes}


def test_mistakes_of_fields_and_of_rules_over_several_are_told_at_once():
    by_fields = mistakes(
        {
            "num_steps": "abc",
            "algorithm": {"mini_batch_size": 5, "bucket_spread": 0.0},
            "data": {"min_operations": 9, "max_operations": 3, "template": "paper"},
            "optim": {"learning_rate": 0.0},
        }
    )
    assert by_fields.keys() == {
        ("num_steps",),
        ("algorithm.mini_batch_size",),
        ("algorithm.bucket_spread",),
        ("optim.learning_rate",),
        ("data.max_operations",),
        ("data.template",),
    }
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
        ("num_steps", True),
        ("optim.learning_rate", True),
        ("algorithm.experience_ratio", False),
        ("data.num_held_out", True),
    ],
)
def test_true_and_false_are_no_numbers(field, value):
    section, _, name = field.rpartition(".")
    content = {section: {name: value}} if section else {name: value}
    assert mistakes(content).keys() == {(field,)}


def test_truth_values_are_read_where_they_are_meant():
    assert parse_spec({"keeps_best_checkpoint": False, "seed": 1}, "form").keeps_best_checkpoint is False
