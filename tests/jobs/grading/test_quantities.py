from fractions import Fraction

import pytest

from jobs.grading.quantities import bare_text, ends_in_variable, is_arithmetic, read_number, read_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8.7e8", 870_000_000),
        (r"8.7\times10^{8}", 870_000_000),
        (r"8.7 \times 10^8", 870_000_000),
        (r"1.5 * 10^{-3}", Fraction(3, 2000)),
        ("10^{6}", 1_000_000),
        ("1,234,567", 1_234_567),
        ("1 234 567", 1_234_567),
        ("1{,}234", 1234),
        ("16,386.20", Fraction("16386.2")),
        ("1 2", None),
        ("1 23", None),
        ("12 3456", None),
        ("1 000 5", None),
        ("32, 349", None),
        ("-.5", Fraction(-1, 2)),
        (r"\frac{7}{2}", Fraction(7, 2)),
        (r"\frac3{3}", 1),
        (r"\frac{1}{-2}", Fraction(-1, 2)),
        (r"-3\frac{1}{2}", Fraction(-7, 2)),
        (r"3 \frac12", Fraction(7, 2)),
        ("3 1/2", Fraction(7, 2)),
        ("-3 1/2", Fraction(-7, 2)),
        ("3 125/1000", Fraction(25, 8)),
        ("3 5/2", None),
        (r"3\frac{5}{2}", None),
        ("31/2", Fraction(31, 2)),
        (r"\dfrac12", Fraction(1, 2)),
        ("7/2", Fraction(7, 2)),
        ("7/0", None),
        ("1e9999", None),
        ("6*7", None),
        ("(5)", 5),
        ("{5}", 5),
        (r"( \frac12 )", Fraction(1, 2)),
        ("(1)(2)", None),
        ("--5", None),
        ("x", None),
        ("1,2", None),
        ("", None),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert read_number(text) == value


@pytest.mark.parametrize(
    ("text", "value", "is_scaled"),
    [
        ("5 million", 5_000_000, True),
        (r"2.5 \text{ billion dollars}", 2_500_000_000, True),
        ("5K", 5000, True),
        (r"\$5M", 5_000_000, True),
        ("5 K", 5, False),
        ("5 cm", 5, False),
        (r"x = 5\text{ cm}", 5, False),
        (r"v = 3.0\times10^8~\text{m/s}", 300_000_000, False),
        (r"\$16,\!386.20", Fraction("16386.2"), False),
        (r"10\,000", 10_000, False),
        (r"50\%", 50, False),
    ],
)
def test_a_scale_multiplies_and_a_unit_does_not(text, value, is_scaled):
    quantity = read_quantity(text)
    assert quantity is not None
    assert (quantity.value, quantity.is_scaled) == (value, is_scaled)


@pytest.mark.parametrize("text", ["5 apples", "x", "5 or 6", "2x"])
def test_other_texts_are_no_quantity(text):
    assert read_quantity(text) is None


def test_dollars_are_a_unit_on_either_side_of_the_number():
    assert read_quantity(r"\$5") == read_quantity(r"5\$") == read_quantity("5 dollars")


@pytest.mark.parametrize(("text", "bare"), [(r"$\left(5\right)$", "(5 )"), ("x_{1} = 3.", "3"), ("x+1", "x+1")])
def test_names_and_layout_are_taken_off(text, bare):
    assert bare_text(text) == bare


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6*7", True),
        ("40 + 2", True),
        ("50 - 8", True),
        (r"84 \div 2", True),
        (r"2^3 \cdot 3", True),
        (r"2^{10}", False),
        ("5!", False),
        (r"\binom{4}{2}", False),
        ("--5", False),
        ("2x", False),
        ("1,2", False),
    ],
)
def test_sums_and_products_of_plain_numbers_are_calculations(text, expected):
    assert is_arithmetic(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5m", True), ("2k", True), ("5 m", False), (r"5\text{m}", False), ("5cm", False), ("5K", False), ("5", False)],
)
def test_a_letter_right_behind_a_number_is_a_variable(text, expected):
    assert ends_in_variable(text) is expected
