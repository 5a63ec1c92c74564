"""The order of a list, as an address has it, and that of names."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=StrEnum)
NUM_DIGITS = 40
NUMBER_IN_NAME = rf"(?<![0-9])(?<![0-9]\.)([0-9]{{1,{NUM_DIGITS - 1}}})(?![0-9])"
"""A number in a name without its decimals, whose digits have the order of numbers as they are."""


def natural_order(name: str) -> str:
    """Return a text to sort a name by, its numbers with leading zeros: `2` comes before `10`, `0.25` before `0.5`."""
    return re.sub(NUMBER_IN_NAME, lambda number: number.group().zfill(NUM_DIGITS), name)


@dataclass(frozen=True)  # slots and type arguments do not go together in Python 3.11
class SortOrder(Generic[Key]):
    """Equal rows are newest first, and those without a value come last."""

    key: Key
    is_descending: bool = True

    @classmethod
    def read(cls, text: str, keys: type[Key]) -> "SortOrder[Key] | None":
        """Return the order of an address: a key, descending after `-`; None, newest first, of any other text."""
        key = text.removeprefix("-")
        return cls(keys(key), text.startswith("-")) if key in {*keys} else None
