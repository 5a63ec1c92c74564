import pytest

from jobs.specs.mistakes import SpecError
from jobs.specs.train import parse_spec


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
    ("content", "sentence"),
    [
        ({"optim": {"learning_rate": "fast"}}, "optim.learning_rate: expected a number, got 'fast'"),
        ({"num_steps": 0}, "num_steps: expected at least 1, got 0"),
        ({"num_steps": None}, "num_steps: expected a whole number, got nothing"),
        ({"data": {"requires_think_end": "maybe"}}, "data.requires_think_end: expected true or false, got 'maybe'"),
        ({"model": {"source": ""}}, "model.source: expected 1 or more characters, got ''"),
    ],
)
def test_a_sentence_says_what_was_expected_and_what_came(content, sentence):
    assert [*mistakes(content).values()] == [sentence]
