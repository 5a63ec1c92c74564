from datetime import UTC, datetime, timedelta

import pytest

from app import formats

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (12.4, "12 s"),
        (200, "3 min 20 s"),
        (3900, "1 h 05 min"),
        (183_600, "2 d 3 h"),
        (-1, formats.NONE_SHOWN),
        (None, formats.NONE_SHOWN),
    ],
)
def test_duration_shows_the_two_largest_units(value, expected):
    assert formats.duration(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.24, "240 ms"), (3.42, "3.4 s"), (125, "2 min 05 s"), (None, formats.NONE_SHOWN)]
)
def test_step_seconds_keep_sensible_digits(value, expected):
    assert formats.seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.3125, "31.2%"), (1.0, "100.0%"), (None, formats.NONE_SHOWN), (float("nan"), formats.NONE_SHOWN)],
)
def test_share_is_a_percentage(value, expected):
    assert formats.share(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(12345, "12,345"), (0.000123456, "0.000123"), (74.83, "74.8"), (float("inf"), formats.NONE_SHOWN), (3.0, "3")],
)
def test_number_has_three_digits_or_is_whole(value, expected):
    assert formats.number(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(999, "999 B"), (1_420_000, "1.4 MB"), (2e15, "2000.0 TB")])
def test_byte_size_is_decimal(value, expected):
    assert formats.byte_size(value) == expected


def test_time_without_a_zone_is_utc():
    assert formats.ago(datetime(2026, 1, 2, 11, 59, 48), NOON) == "12 s ago"  # noqa: DTZ001 - as stores return it
    assert formats.ago(NOON - timedelta(milliseconds=300), NOON) == "just now"
    assert formats.exact(NOON) == "2026-01-02 12:00:00 UTC"


def test_control_characters_are_shown_not_obeyed():
    assert formats.escape_control_characters("a\x1b[31mb\u202ec\td\n") == "a␛[31mb\\u202ec\td\n"
    assert formats.escape_control_characters("<b>*x*</b> $1$") == "<b>*x*</b> $1$"


def test_literal_text_keeps_addresses_from_becoming_links():
    assert formats.literal("http://a.example www.a.example a@b.example").count("\N{WORD JOINER}") == 3
    assert "\N{WORD JOINER}" not in formats.literal("20:15, 3/4, http, www")


def test_a_badges_label_leaves_square_brackets_to_the_badge():
    assert formats.badge_label("[a](b) **c** \\[") == "[a](b) \\*\\*c\\*\\* \\\\["


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("run `make *all*` or *wait*", r"run `make *all*` or \*wait\*"),
        ("an odd ` one", r"an odd \` one"),
        ("", ""),
    ],
)
def test_code_is_what_is_between_backticks(text, markdown):
    assert formats.with_code(text) == markdown
