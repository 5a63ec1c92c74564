"""The order of a list, as an address has it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=StrEnum)


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
