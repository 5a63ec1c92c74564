"""Fields of a row that another program wrote: texts, numbers, steps, rewards and values of tokens."""

import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from exgrpo_core.recording.run import as_step
from exgrpo_core.types import PART_PREFIX

Row = dict[str, Any]
NO_REWARDS = {
    "temperature", "kl", "entropy", "length", "completion_length", "num_tokens", "index", "seed", "epoch", "step",
}  # fmt: skip
"""Numbers that people record next to rewards."""
_STEP_FILE = re.compile(r"\d+|(?:.*[^A-Za-z])?(?:step|iter|iteration)[_-]?(\d+)", re.IGNORECASE)


def text_of(row: Row, name: str) -> str:
    """Return a field that must be a text.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value := row.get(name), str):
        raise ValueError(f"{name}: expected a text, got {reprlib.repr(value)}.")
    return value


def number_of(row: Mapping[str, Any], name: str) -> float | None:
    """Return a field that must be a number, None where it is absent.

    Raises:
        ValueError: It is something else, or not finite.
    """
    if (value := row.get(name)) is None:
        return None
    if (number := _finite(value)) is not None:
        return number
    raise ValueError(f"{name}: expected a number, got {reprlib.repr(value)}.")


def step_of(row: Row, name: str) -> int:
    """Return a field that must be the number of a step, as `as_step` reads it.

    Raises:
        ValueError: It is none.
    """
    return as_step(row.get(name), name)


def step_of_file(file: Path) -> str:
    """Return the step in a file's name, as in 3.jsonl and rollouts_step_3.jsonl, as digits; "0" where it has none."""
    match = _STEP_FILE.fullmatch(file.stem)
    return "0" if match is None else match[1] or match[0]


def extra_of(row: Row, known: Iterable[str]) -> dict[str, str | float | bool | None]:
    """Return the fields with one value each that are not among the known ones; a number that is not finite is none."""
    left_out = {*known}
    kept = {name: value for name, value in row.items() if name not in left_out and _is_plain(value)}
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in kept.items()}


def doubled(names: Iterable[str]) -> str:
    """Return a sentence about a name of two columns of a table, because a row keeps one of them; else nothing."""
    name = next((name for name, count in Counter(names).items() if count > 1 and name), None)
    return "" if name is None else f"{name}: two columns have this name; rename one of them."


def with_rewards(extra: Mapping[str, Any], names: Sequence[str]) -> tuple[float | None, dict[str, Any]]:
    """Return the reward of a row whose reward functions have the columns `names`, and its columns.

    The weights of several functions are unknown, so that they have no total; each is a part of the reward.
    """
    if len(names) == 1:
        return _finite(extra.get(names[0])), {**extra}
    return None, {PART_PREFIX * (name in names) + name: value for name, value in extra.items()}


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or _finite(value) is not None


def _finite(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, bool | int | float | Decimal) and math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def of_mask(values: Any, mask: Sequence[object] | None) -> list[Any] | None:  # noqa: ANN401 - what a file holds
    """Return the values of the tokens that the mask counts, all without a mask.

    None unless each of these tokens has a finite number.
    """
    if not isinstance(values, list) or not values or (mask is not None and len(values) != len(mask)):
        return None
    found = values if mask is None else [value for value, counts in zip(values, mask, strict=True) if counts]
    return found if all(isinstance(value, int | float) and math.isfinite(value) for value in found) else None


def only_value(values: Sequence[float] | None) -> float | None:
    """Return what all tokens share, such as an advantage that was spread over them; None where they differ."""
    return values[0] if values and len(set(values)) == 1 else None
