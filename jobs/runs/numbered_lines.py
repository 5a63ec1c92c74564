"""Lines with numbers that begin with 1 and have no gaps: which are damaged, and which are missing."""

from collections.abc import Iterable, Mapping
from typing import Any

_PLURALS = {"entry": "entries", "event": "events", "line": "lines"}


def find_gaps(file: str, lines: Iterable[Mapping[str, Any] | None], noun: str) -> tuple[list[str], int]:
    """Return a sentence on each damaged line (None) and on each gap, and the last number.

    `noun` names what is numbered. Records of older versions have no number and are never missed.
    """
    faults, last = [], 0
    for number, record in enumerate(lines, start=1):
        if record is None:
            faults.append(f"{file}: line {number} is damaged and was skipped.")
        new = last + 1 if record is None else record.get("seq", last)
        if new > last + 1:
            faults.append(f"{file}: {describe_missing(noun, last + 1, new - 1)}.")
        last = max(last, new)
    return faults, last


def describe_missing(noun: str, first: int, last: int) -> str:
    """Return which numbers are missing: `event 3 is missing` or `events 3 to 5 are missing`."""
    return f"{noun} {first} is missing" if first == last else f"{_PLURALS[noun]} {first} to {last} are missing"
