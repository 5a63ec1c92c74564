"""Lines with numbers that begin with 1 and have no gaps: which are damaged, and which are missing."""

from collections.abc import Iterable, Mapping
from typing import Any


def find_gaps(file: str, lines: Iterable[Mapping[str, Any] | None], word: str) -> tuple[list[str], int]:
    """Return a sentence on each damaged line (None) and on each gap, and the last number.

    `word` names what is numbered. Records of older versions have no number and are never missed.
    """
    faults, last = [], 0
    for number, record in enumerate(lines, start=1):
        if record is None:
            faults.append(f"{file}: line {number} is damaged and was skipped.")
        new = last + 1 if record is None else record.get("seq", last)
        if new > last + 1:
            faults.append(f"{file}: {word} {last + 1} to {new - 1} are missing.")
        last = max(last, new)
    return faults, last
