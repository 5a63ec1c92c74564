from fractions import Fraction

import pytest

from jobs.grading.quantities import is_arithmetic, read_quantity, without_unit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8.7e8", 870_000_000),
        (r"8.7\times10^{8}", 870_000_000),
        (r"8.7 \times 10^8", 870_000_000),
        (r"1.5 * 10^{-3}", Fraction(3, 2000)),
        ("10^{6}", 1_000_000),
        ("1,234,567", 1_234_567),
        ("1{,}234", 1234),
        ("-.5", Fraction(-1, 2)),
        (r"\frac{7}{2}", Fraction(7, 2)),
        (r"-3\frac{1}{2}", Fraction(-7, 2)),
        (r"\dfrac12", Fraction(1, 2)),
        ("7/2", Fraction(7, 2)),
        ("7/0", None),
        ("1e9999", None),
        ("6*7", None),
        ("x", None),
        ("1,2", None),
        ("", None),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert read_quantity(text) == value


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (r"5\text{ cm}", "5"),
        (r"5\,\mathrm{m}/\mathrm{s}^2", "5"),
        ("5 cm", "5"),
        (r"50\%", "50"),
        (r"90^\circ", "90"),
        (r"\$5", "5"),
        (r"v = 3.0\times10^8~\text{m/s}", r"3.0\times10^8"),
        ("x+1", "x+1"),
        (r"\text{yes}", ""),
    ],
)
def test_units_names_and_signs_are_taken_off(text, bare):
    assert without_unit(text) == bare


@pytest.mark.parametrize(
    ("text", "expected"), [("6*7", True), (r"2^{10}", True), (r"\binom{4}{2}", True), ("2x", False)]
)
def test_calculations_with_plain_numbers_are_known(text, expected):
    assert is_arithmetic(text) is expected
