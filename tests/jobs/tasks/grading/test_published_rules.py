import pytest
import sympy

from exgrpo.jobs.tasks.grading.published_rules import (
    ExpressionError,
    equals_by_published_rules,
    normalize_first,
    normalize_second,
    read_expression,
)

pytestmark = pytest.mark.slow


def never(_gold: str, _answer: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("answer", "first", "second"),
    [
        (r"\frac12", r"\frac{1}{2}", "1/2"), (r"\dfrac{1}{2}", r"\frac{1}{2}", "1/2"), ("0.5", r"\frac{1}{2}", "0.5"),
        ("1/2", r"\frac{1}{2}", "1/2"), (r"\frac1{72}", r"\frac{1}{72}", "1/72"), (r"\text{(C)}", "(C)", "(c)"),
        (r"5\text{ cm}", "5", "5"), ("x=5", "5", "x=5"), (r"\sqrt3", r"\sqrt{3}", "sqrt(3)"),
        ("10,000", "10,000", "10000"), (r"\$5", "5", "5"), (r"90^\circ", "90", "90"), (".5", r"\frac{1}{2}", ".5"),
        (r"3 \frac{1}{2}", r"3\frac{1}{2}", "3+1/2"), ("2.0", "2.0", "2"),
    ],
)  # fmt: skip
def test_answers_are_rewritten_as_published(answer, first, second):
    assert (normalize_first(answer), normalize_second(answer)) == (first, second)


@pytest.mark.parametrize(
    ("gold", "answer", "is_equal"),
    [
        ("p-q", "-q+p", True),
        ("3/4", "6/8", False),
        ("3", "2.9999", False),
        ("(1,2)", "(1, 2)", True),
        ("(1,2)", "[1, 2]", False),
        ("(1,2)", "(1,2,3)", False),
        ("sqrt(8)", "2*sqrt(2)", True),
        ("2^100", "3^100", False),
        ("x+y+z", "z+y+x", False),
        ("a+b+c", "c+b+a", True),  # a and c are taken for units, here as in the original
    ],
)
def test_formulas_are_compared_as_published(gold, answer, is_equal):
    assert equals_by_published_rules(gold, answer, never) is is_equal


def test_math_verify_has_the_last_word_but_not_on_long_repetitions():
    assert equals_by_published_rules("x+y+z", "z+y+x", lambda gold, answer: (gold, answer) == ("$x+y+z$", "$z+y+x$"))
    assert not equals_by_published_rules("5", "1" * 200, lambda _gold, _answer: True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2(3+4)", 14), ("2^3^2", 512), ("-2^2", -4), ("1/2+1/3", sympy.Rational(5, 6)), ("2sqrt(9)", 6), ("3 4", 12)],
)
def test_formulas_are_read_with_the_usual_precedence(text, value):
    assert read_expression(text) == value


@pytest.mark.parametrize("text", ["1+", "(1", "1)", "1;2", "x.y", "99999!", "__import__", "9^99999", ""])
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ExpressionError):
        read_expression(text)
