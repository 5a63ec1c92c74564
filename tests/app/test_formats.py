import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exgrpo import app, db, jobs
from exgrpo.app import formats
from exgrpo.app.formats import NONE_SHOWN


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (1, "question", "1 question"), (0, "run", "0 runs"), (1200, "trajectory", "1,200 trajectories"),
        (2, "day", "2 days"),
    ],
)  # fmt: skip
def test_a_number_of_things_has_its_plural(count, noun, expected):
    assert formats.counted(count, noun) == expected


NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("write", "value", "expected"),
    [
        (formats.duration, 0, "0 s"), (formats.duration, 12.4, "12 s"), (formats.duration, 200, "3 min 20 s"),
        (formats.duration, 60, "1 min 00 s"), (formats.duration, 3600, "1 h 00 min"),
        (formats.duration, 3900, "1 h 05 min"), (formats.duration, 183_600, "2 d 3 h"),
        (formats.duration, -1, NONE_SHOWN), (formats.duration, None, NONE_SHOWN),
        (formats.seconds, 0.24, "240 ms"), (formats.seconds, 3.42, "3.4 s"), (formats.seconds, 125, "2 min 05 s"),
        (formats.seconds, None, NONE_SHOWN),
        (formats.share, 0.3125, "31.3%"), (formats.share, -0.00125, "-0.1%"),
        (formats.share, 1.0, "100.0%"), (formats.share, None, NONE_SHOWN),
        (formats.share, float("nan"), NONE_SHOWN),
        (formats.number, 12345, "12,345"), (formats.number, 0.000123456, "0.000123"), (formats.number, 74.83, "74.8"),
        (formats.number, float("inf"), NONE_SHOWN), (formats.number, 3.0, "3"),
        (formats.number, 999.6, "1,000"), (formats.number, 1016, "1,016"), (formats.number, -1234.5, "-1,234"),
        (formats.number, -0.0, "0"), (formats.nats, -0.0004, "0.000"), (formats.nats, -0.0006, "-0.001"),
        (formats.byte_size, 999, "999 B"), (formats.byte_size, 1_420_000, "1.4 MB"),
        (formats.byte_size, 2e15, "2000.0 TB"),
        (formats.exact, NOON, "2026-01-02 12:00:00 UTC"),
        (formats.escape_control_characters, "a\x1b[31mb\u202ec\td\n", "a␛[31mb\\u202ec\td\n"),
        (formats.badge_label, "[a](b) **c** \\[", "[a](b) \\*\\*c\\*\\* \\\\["),
        (formats.with_code, "run `make *all*` or *wait*", r"run `make *all*` or \*wait\*"),
        (formats.with_code, "an odd ` one", r"an odd \` one"), (formats.with_code, "", ""),
    ],
)  # fmt: skip
def test_values_are_written_for_readers(write, value, expected):
    assert write(value) == expected


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([0.04357, 0.25], ",.3~r"), ([1016.0, 7.0], ",.0f"), ([345.2, 1016.4], ",.0f"), ([0.5, 12_345.6], ",.5~r"),
        ([2e-5, float("nan")], ".3~g"), ([-0.5, 999.6], ",.4~r"), ([], ",.0f"), ([float("inf")], ",.0f"),
    ],
)  # fmt: skip
def test_values_under_the_pointer_have_the_digits_of_tiles(values, written):
    assert formats.hover(values) == written


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([0.25, 0.242], "%.3f"), ([74.8, 3], "%.1f"), ([1, 2], None), ([0.5, 1016], None), ([0.5, None], "%.1f"),
        ([0.00005, 0.5], None), ([12.5, 0.00123], None), (["a"], None), ([], None),
    ],
)  # fmt: skip
def test_a_columns_numbers_have_as_many_decimals_as_any_of_them_needs(values, written):
    assert formats.column_format(values) == written


def test_no_signed_difference_that_rounds_to_zero_has_a_minus():
    """Of Python's formats `z` takes care of it; those of plotly keep the minus before a zero if a plus is asked for."""
    packages = [Path(package.__file__).parent for package in (app, db, jobs)]
    sources = [file.read_text() for package in packages for file in package.rglob("*.py")]
    signed = [found for source in sources for found in re.findall(r":\+[z,.\d]*[fge%]\}", source)]
    assert len(signed) > 5
    assert [found for found in signed if not found.startswith(":+z")] == []


def test_time_without_a_zone_is_utc():
    assert formats.ago(datetime(2026, 1, 2, 11, 59, 48), NOON) == "12 s ago"  # noqa: DTZ001 - as stores return it
    assert formats.ago(NOON - timedelta(milliseconds=300), NOON) == "just now"


def test_literal_text_keeps_addresses_from_becoming_links():
    assert formats.literal("http://a.example www.a.example a@b.example").count("\N{WORD JOINER}") == 3
    assert "\N{WORD JOINER}" not in formats.literal("20:15, 3/4, http, www")


@pytest.mark.parametrize("text", ["a -> b", "-> b", "a >=", "a <= b", "a <-> b", "a -- b", "~= a"])
def test_literal_text_keeps_two_characters_from_becoming_one_sign(text):
    shown = formats.literal(text)
    assert shown.count("\N{WORD JOINER}") == 1
    assert shown.replace("\N{WORD JOINER}", "").replace("\\", "") == text


@pytest.mark.parametrize("text", ["a->b", "--flag", "x-y", "a - b", "a > b", "1 = 1"])
def test_literal_text_has_no_joiner_where_none_is_needed(text):
    assert "\N{WORD JOINER}" not in formats.literal(text)
