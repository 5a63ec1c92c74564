from fractions import Fraction

import pytest

from jobs.grading.units import PERCENT, Unit, plain_words, read_unit, split_unit


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        (r"5\text{ cm}", "5", r"\text{ cm}"),
        (r"5 \mathrm{m}/\mathrm{s}^2", "5", r"\mathrm{m}/\mathrm{s}^2"),
        ("5 cm", "5", "cm"),
        ("5 million dollars", "5", "million dollars"),
        (r"50\%", "50", r"\%"),
        (r"90^\circ", "90", r"^\circ"),
        ("5 K", "5", "K"),
        ("5K", "5K", ""),
        ("x+1", "x+1", ""),
        ("5 apples", "5 apples", ""),
        (r"\text{yes}", "", r"\text{yes}"),
    ],
)
def test_units_at_the_end_are_cut_off(text, number, unit):
    assert split_unit(text) == (number, unit)


@pytest.mark.parametrize(
    ("text", "size", "powers"),
    [
        ("km/h", Fraction(1000, 3600), {("length", 1), ("time", -1)}),
        ("kilometers per hour", Fraction(1000, 3600), {("length", 1), ("time", -1)}),
        (r"\mathrm{m}/\mathrm{s}^2", 1, {("length", 1), ("time", -2)}),
        (r"\text{cm}^2", Fraction(1, 10_000), {("length", 2)}),
        (r"\text{Miles}", Fraction(1_609_344, 1000), {("length", 1)}),
        (r"^\circ", 1, {("degrees", 1)}),
        ("m/m", 1, set()),
    ],
)
def test_a_unit_is_its_size_and_the_powers_of_base_units(text, size, powers):
    assert read_unit(plain_words(text)) == Unit(Fraction(size), frozenset(powers))


@pytest.mark.parametrize("text", [r"\%", "percent", r"\text{pct}"])
def test_per_cent_is_a_unit_of_one_hundredth(text):
    assert read_unit(plain_words(text)) == PERCENT


@pytest.mark.parametrize("text", ["", r"\text{ways}", r"\text{square cm}", r"^\circ\text{C}", r"\text{cm}^{99}"])
def test_other_words_are_no_unit_of_the_table(text):
    assert read_unit(plain_words(text)) is None
