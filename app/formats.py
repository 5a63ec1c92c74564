"""Numbers with units and sensible digits, times, and text made safe to show."""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

from exgrpo.db.rows.display_names import as_utc as as_utc
from exgrpo.db.rows.display_names import escape_control_characters as escape_control_characters
from exgrpo.db.rows.display_names import utc_time

NONE_SHOWN = "\N{EN DASH}"
VALIDITY = {True: "valid", False: "not valid", None: NONE_SHOWN}
_SECONDS_PER_MINUTE, _SECONDS_PER_HOUR, _SECONDS_PER_DAY = 60, 3600, 86400
_THOUSAND, _HUNDRED = 1000, 100
_ROUNDS_TO_THOUSAND, _TINY = 999.5, 1e-3
_MAX_DECIMALS = 3
"""Of a column of numbers; more are needed where these differ by powers of ten."""
SHARE_HOVER, NATS_HOVER = ".1%", ".3f"
"""Plotly's formats in which the browser writes values as `share` and `nats` do."""
_LINK_STARTS = re.compile(r"https?(?=://)|www(?=\.)|@(?=[\w-]+\.\w)", re.IGNORECASE)
_SYMBOLS = re.compile(r"(?:(?<=\s)|^)([-<>~])(?=(?:>|-|=|->)(?:\s|$))", re.MULTILINE)
"""Where Streamlit would put an arrow, a dash or another sign instead of two characters."""
_LIST_STARTS = re.compile(r"^([^\S\n]*\d*)([-+.)])", re.MULTILINE)


def share(value: float | None) -> str:
    """Return a share in [0, 1] as a percentage: 0.3125 is `31.3%`; a half is rounded up, as browsers do."""
    if value is None or not math.isfinite(value):
        return NONE_SHOWN
    return f"{Decimal(100 * value).quantize(Decimal('0.1'), ROUND_HALF_UP):z.1f}%"


def in_percent(value: float | None) -> float | None:
    """Return a share in [0, 1] in percent, for a table's column of numbers."""
    return None if value is None else 100.0 * value


def known(value: float) -> float | None:
    """Return a number for a table's column, None instead of NaN."""
    return None if math.isnan(value) else value


def number(value: float | None) -> str:
    """Return a number with three significant digits, or as an integer with separators."""
    if value is None or not math.isfinite(value):
        return NONE_SHOWN
    if value == int(value) or abs(value) >= _ROUNDS_TO_THOUSAND:
        return f"{value:z,.0f}"
    return f"{value:z.3g}"


def hover(values: Iterable[float]) -> str:
    """Return plotly's format in which the browser writes the values of a curve as `number` does.

    A curve has one format: if it needs decimals and goes beyond a thousand, all of its values have the digits of the
    largest.
    """
    known = [abs(value) for value in values if math.isfinite(value)]
    if not known or all(value == int(value) for value in known) or min(known) >= _HUNDRED:
        return ",.0f"
    digits = max(3, len(f"{max(known):.0f}"))
    return ".3~g" if max(known) < _TINY else f",.{digits}~r"


def column_format(values: Iterable[object]) -> str | None:
    """Return the format of a table's column of numbers with as many decimals as `number` gives any; None for its own.

    So 0.25 next to 0.242 is 0.250. None where numbers are whole, large or tiny: each is written as by `number`.
    """
    known = [abs(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    parts = [value for value in known if value != int(value)]
    if not parts or max(known) >= _ROUNDS_TO_THOUSAND or min(parts) < _TINY:
        return None
    decimals = max(len(number(value).partition(".")[2]) for value in parts)
    return f"%.{decimals}f" if decimals <= _MAX_DECIMALS else None


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 run`, `1,200 runs`, `2 trajectories`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def nats(value: float | None) -> str:
    """Return an entropy or a negative log-likelihood in nats per token: `0.110`."""
    return NONE_SHOWN if value is None or not math.isfinite(value) else f"{value:z.3f}"


def seconds(value: float | None) -> str:
    """Return a duration of one step: `840 ms`, `3.4 s`, `2 min 05 s`."""
    if value is None or not math.isfinite(value):
        return NONE_SHOWN
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < _SECONDS_PER_MINUTE else duration(value)


def duration(value: float | None) -> str:
    """Return a length of time in its two largest units: `12 s`, `3 min 20 s`, `1 h 05 min`, `2 d 3 h`."""
    if value is None or not math.isfinite(value) or value < 0:
        return NONE_SHOWN
    whole = round(value)
    if whole < _SECONDS_PER_MINUTE:
        return f"{whole} s"
    if whole < _SECONDS_PER_HOUR:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < _SECONDS_PER_DAY:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // _SECONDS_PER_DAY} d {whole % _SECONDS_PER_DAY // 3600} h"


def byte_size(num_bytes: int) -> str:
    """Return a size in decimal units: `1.4 MB`."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < _THOUSAND:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _THOUSAND
    return f"{value:.1f} TB"


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago something was, in its largest unit: `12 s ago`, `4 h ago`."""
    if at is None:
        return NONE_SHOWN
    elapsed = ((now or datetime.now(UTC)) - as_utc(at)).total_seconds()
    return "just now" if elapsed < 1 else f"{' '.join(duration(elapsed).split()[:2])} ago"


def exact(at: datetime | None) -> str:
    """Return a time to the second, in UTC."""
    return NONE_SHOWN if at is None else utc_time(at)


def literal(text: str) -> str:
    """Return text escaped for Markdown, such as in a label or a caption, so that it is displayed unchanged.

    Addresses become links and `->` an arrow even if their characters are escaped; a word joiner, which has no width,
    prevents it.
    """
    apart = _LINK_STARTS.sub("\\g<0>\N{WORD JOINER}", escape_control_characters(text))
    apart = _SYMBOLS.sub("\\g<1>\N{WORD JOINER}", apart)
    escaped = "".join(f"\\{character}" if character in r"\`*_{}[]<>#|$:~&" else character for character in apart)
    return _LIST_STARTS.sub(r"\1\\\2", escaped)


def with_code(text: str) -> str:
    """Return text escaped for Markdown, but for what is between backticks, which is displayed as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return literal(text)
    return "".join(
        f"`{escape_control_characters(part)}`" if number % 2 else literal(part) for number, part in enumerate(parts)
    )


def badge_label(text: str) -> str:
    """Return text for a badge, which escapes square brackets itself, so that it is displayed unchanged."""
    return literal(text).replace(r"\[", "[").replace(r"\]", "]")
