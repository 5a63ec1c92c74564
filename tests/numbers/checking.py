"""Compares what a page shows with what is derived from files, number by number."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

Columns = Mapping[str, Sequence[Any]]
Table = pd.DataFrame | Sequence[pd.DataFrame] | Callable[[pd.DataFrame], pd.DataFrame]
_DIGIT = re.compile(r"\d")
_TOLERANCE = 2e-4
"""Relative, since some values are recorded as float16 means or drawn as float32."""


FIXED = (
    r"Last seen .* ago\. Active runs continue, .*",  # on a machine where a page takes long
    r"\*\*Scores\*\* &nbsp; :gray\[:small\[share; held out with 95% interval]]",
    r"\*\*Gradient weight of replayed tokens\*\* &nbsp; .*",
    r"\*\*Fresh Pass@1\*\* &nbsp; :gray\[:small\[share of rollouts]]",
    r"\*\*(Entropy by bucket|Different answers)\*\* &nbsp; .*",
    r"Percent correct; below it the 95% interval over questions\..*",
    r"Second minus first, in points; 95% intervals .*",
    r"Previous Zero RLVR Methods, GPG-Zero, .*",
    r"\*\*(Medium first|K or K-1 rollouts|Keep successes)\*\*: .*",
    r"exgrpo eval RUN@last -b math500 .*",
    r"A question is retired if all n of its rollouts are correct\. .*",
    r"Correct answers with a verdict\. A question is hard in a step if up to 25% .* medium up to 75%, .*",
    r"ExGRPO: Learning to Reason from Experience \(ICLR 2026\), .*",
    r"You are an expert in mathematics .*",
    r"\*\*Held-out Avg@n\*\* &nbsp; :gray\[:small\[share; band of one run: 95% interval over questions]]",
)
"""Words of pages with digits that are of no run."""


QUOTED = frozenset({"Response", "Text"})
"""Columns of what a model wrote."""


@dataclass
class Expected:
    """What is derived: by label of a tile, description of a table, title of a figure and name of a trace in it.

    Of several tables of one description the first that has as many rows counts. Texts are patterns, or say of a text
    whether it is theirs; one that fits accounts for all numbers in it.
    """

    tiles: dict[str, tuple[str, str]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, dict[str, Columns]] = field(default_factory=dict)
    texts: list[str | Callable[[str], bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Near:
    """A number that the page simulates: derived by other draws, and near by a relative tolerance."""

    value: float
    tolerance: float
    absolute: float = 0.0


@dataclass
class Tally:
    """How many numbers a page shows, those that are derived and right, the wrong ones and those not derived."""

    num_shown: int = 0
    num_right: int = 0
    wrong: list[str] = field(default_factory=list)
    not_derived: list[str] = field(default_factory=list)

    def add(self, where, shown, expected):
        """Count one number; where it is in words, all of the words have to be right."""
        self.num_shown += 1
        if is_same(shown, expected):
            self.num_right += 1
        else:
            self.wrong.append(f"{where}: shown {shown!r}, derived {expected!r}")

    def leave(self, where, count):
        """Count numbers that no rule derives."""
        if count:
            self.num_shown += count
            self.not_derived.append(f"{where} ({count})")

    def __add__(self, other):
        return Tally(
            self.num_shown + other.num_shown, self.num_right + other.num_right,
            self.wrong + other.wrong, self.not_derived + other.not_derived,
        )  # fmt: skip


def check(page, shown, expected):
    """Return the tally of one page."""
    tally = Tally()
    for label, *parts in shown.tiles:
        where = f"{page}, tile {label}"
        numbers = [place for place, part in enumerate(parts) if _DIGIT.search(part)]
        if label not in expected.tiles:
            tally.leave(where, len(numbers))
            continue
        for place in numbers:
            tally.add(where, parts[place], expected.tiles[label][place])
    for alt, frame in shown.tables:
        _check_table(f"{page}, table {alt[:40]}", frame, _table_for(frame, expected.tables.get(alt)), tally)
    for title, traces in shown.figures:
        for trace in traces:
            derived = expected.figures.get(title, {}).get(trace.name)
            _check_trace(f"{page}, figure {title}, {trace.name}", trace, derived, tally)
    for text in filter(_DIGIT.search, shown.texts):
        if any(re.fullmatch(pattern, text, re.DOTALL) for pattern in FIXED):
            continue
        if any(_fits(pattern, text) for pattern in expected.texts):
            tally.add(f"{page}, text", text, text)
        else:
            tally.leave(f"{page}, text {text[:90]!r}", 1)
    return tally


def _table_for(frame, derived):
    if callable(derived):
        return derived(frame)
    if derived is None or isinstance(derived, pd.DataFrame):
        return derived
    return next((table for table in derived if len(table) == len(frame)), None)


def _fits(wanted, text):
    return wanted(text) if callable(wanted) else re.fullmatch(wanted, text, re.DOTALL) is not None


def quoted(text):
    """Return the pattern of a text of a model, whose control characters pages make visible."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", ".", re.escape(text.rstrip())) + r"\s*"


def _check_table(where, frame, derived, tally):
    key = str(frame.columns[0])
    if derived is not None and key in derived and set(derived[key]) == set(frame[key]) and frame[key].is_unique:
        derived = derived.set_index(key, drop=False).loc[frame[key].tolist()]
    for name in [str(name) for name in frame.columns if name not in QUOTED]:
        cells = frame[name].tolist()
        if derived is None or name not in derived or len(derived) != len(frame):
            size = "" if derived is None else f", {len(frame)} rows, derived {len(derived)}"
            tally.leave(f"{where}, {name}{size}", sum(map(_holds_number, cells)))
            continue
        for row, (cell, value) in enumerate(zip(cells, derived[name].tolist(), strict=True)):
            if _holds_number(cell) or _holds_number(value):
                tally.add(f"{where}, {name}, row {row}", cell, value)


def _check_trace(where, trace, derived, tally):
    if derived is not None:
        derived = {name: item(trace.columns) if callable(item) else item for name, item in derived.items()}
    for name, values in trace.columns.items():
        if name in {"x", "label", "source", "target", "text", "customdata"} and not _is_measured(name, trace):
            if derived is not None and name in derived and not is_same(values, list(derived[name])):
                tally.wrong.append(f"{where}, {name}: shown {values[:5]}, derived {list(derived[name])[:5]}")
            continue
        flat = list(_flat(values))
        if derived is None or name not in derived:
            tally.leave(f"{where}, {name}", sum(map(_holds_number, flat)))
            continue
        wanted = list(_flat(derived[name]))
        if len(wanted) != len(flat):
            tally.num_shown += len(flat)
            tally.wrong.append(f"{where}, {name}: shown {len(flat)} points, derived {len(wanted)}")
            continue
        for place, (value, other) in enumerate(zip(flat, wanted, strict=True)):
            if _holds_number(value) or _holds_number(other):
                tally.add(f"{where}, {name}, point {place}", value, other)


def _is_measured(name, trace):
    """Whether a figure's values are along x: those of bars and points next to names."""
    return name == "x" and any(isinstance(value, str) for value in trace.columns.get("y", ()))


def _flat(values):
    for value in values:
        if isinstance(value, list | tuple | np.ndarray):
            yield from _flat(value)
        else:
            yield value


def _holds_number(value):
    if isinstance(value, str):
        return _DIGIT.search(value) is not None
    if isinstance(value, list | tuple | np.ndarray):
        return any(map(_holds_number, value))
    return isinstance(value, Near) or (value is not None and not isinstance(value, bool) and not pd.isna(value))


def is_same(shown, expected):
    """Whether a number or text is the derived one, lists item by item."""
    if isinstance(shown, list | tuple | np.ndarray):
        return len(shown) == len(expected) and all(map(is_same, shown, expected))
    if isinstance(shown, str) or isinstance(expected, str):
        if hasattr(expected, "fullmatch"):
            return bool(expected.fullmatch(shown))
        return bool(shown == expected)
    if isinstance(expected, Near):
        return math.isclose(shown, expected.value, rel_tol=expected.tolerance, abs_tol=expected.absolute)
    if expected is None or shown is None or pd.isna(shown) or pd.isna(expected):
        return (shown is None or pd.isna(shown)) and (expected is None or pd.isna(expected))
    return math.isclose(float(shown), float(expected), rel_tol=_TOLERANCE, abs_tol=2e-6)
