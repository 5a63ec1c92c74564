import pytest

from exgrpo.app.components.new_run import spec_form


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("expected a number, got x.", "Expected a number, got x."),
        ("held-out questions are too few.", "Held-out questions are too few."),
        ("owner/model is no folder here.", "owner/model is no folder here."),
        ("mine.jsonl, row 2: no answer.", "mine.jsonl, row 2: no answer."),
        ("vLLM has no such model.", "vLLM has no such model."),
    ],
)
def test_a_sentence_about_a_field_begins_with_a_capital_letter_unless_with_a_name(sentence, shown):
    assert spec_form._capitalized(sentence) == shown
