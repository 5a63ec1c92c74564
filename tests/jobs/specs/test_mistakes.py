import pytest

from jobs.specs.mistakes import SpecError, fields_of
from jobs.specs.train import parse_spec


def mistakes(content):
    with pytest.raises(SpecError) as refused:
        parse_spec(content, "form")
    return {fields_of(mistake): mistake for mistake in refused.value.mistakes}


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


def test_rule_that_a_wrong_field_has_a_part_in_waits_until_that_is_mended():
    content = {"data": {"min_operations": "many", "max_operations": 2}}
    assert mistakes(content).keys() == {("data.min_operations",)}


def test_rule_about_two_fields_names_both():
    by_fields = mistakes({"sft": {}})
    assert ("algorithm.experience_ratio", "algorithm.uses_external_experience") in by_fields


def test_cleared_number_is_a_mistake():
    assert mistakes({"num_steps": None})["num_steps",] == "num_steps: expected a whole number, got nothing"
