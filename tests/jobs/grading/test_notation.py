import pytest

from jobs.grading.notation import denies_its_number, digits_and_base, form_of


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (r"\{1,2\}", "set"),
        (r"\left\{ 1, 2 \right\}", "set"),
        (r"\{(1,2),(2,1)\}", "set"),
        ("(1,2)", "tuple"),
        (r"\left[0, 1\right)", "tuple"),
        ("1,2", "list"),
        ("{1,2}", "list"),
        ("(1,2),(2,1)", "list"),
        (r"\{x \mid 0<x, x<1\}", None),
        ("(5)", None),
        (r"\frac{1}{2}", None),
        (r"f(1,2)", None),
        ("5", None),
        ("", None),
    ],
)
def test_sets_tuples_and_lists_are_told_apart_by_their_brackets(text, form):
    assert form_of(text) == form


@pytest.mark.parametrize(
    ("text", "digits_with_base"),
    [
        ("1010_2", ("1010", 2)),
        ("0204_{5}", ("204", 5)),
        (r"204_{\text{5}}", ("204", 5)),
        ("1A_{16}", ("1A", 16)),
        ("204", ("204", None)),
        ("x_2", None),
        ("2.5", None),
        ("", None),
    ],
)
def test_a_base_is_the_index_of_digits(text, digits_with_base):
    assert digits_and_base(text) == digits_with_base


@pytest.mark.parametrize(
    ("text", "is_denied"),
    [
        (r"5 \text{ is wrong}", True),
        ("5 is not correct", True),
        (r"\neq 5", True),
        (r"x \ne 5", True),
        (r"\not= 5", True),
        ("not 5", True),
        (r"\text{No}", True),
        ("not 6, it is 5", False),
        (r"5 \text{ notes}", False),
        (r"\nu + 5", False),
        (r"5 \text{ ways}", False),
    ],
)
def test_only_a_last_number_that_words_deny_is_no_answer(text, is_denied):
    assert denies_its_number(text) is is_denied
