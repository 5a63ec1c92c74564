"""What a loop hands over as a trajectory: text, a mapping, or the type itself."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from exgrpo_core.recording.lines import as_plain, checked
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedTrajectory
from exgrpo_core.types import PART_PREFIX

_RESPONSES = ("response", "completion", "output")
_NAMES = {
    "tokens": "token_ids",
    "logprobs": "log_probs",
    "old_log_probs": "log_probs",
    "entropy": "entropies",
    "advantages": "advantage",
    "score": "reward",
    "rewards": "reward",
}
"""Other names of facts."""
_FACTS = frozenset(field.name for field in fields(RecordedTrajectory)) - {"messages", "extra"}
_OF_TOKENS = frozenset({"token_ids", "log_probs", "update_log_probs", "entropies"})


def as_trajectory(given: object) -> RecordedTrajectory:
    """Return a trajectory of a `RecordedTrajectory`, a text, which is a response, or a mapping.

    A mapping has `messages` in OpenAI's shape, or `prompt` (or `question`) and `response` (or `completion`), each text
    or messages; of the facts of `RecordedTrajectory` any; `rewards`, the parts of the reward by name. Everything else
    is a column.

    Raises:
        ValueError: There are neither messages nor a response, or a fact is of another type.
    """
    if isinstance(given, RecordedTrajectory):
        return given
    if isinstance(given, str):
        return RecordedTrajectory((Message("assistant", given, is_generated=True),))
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a mapping or a text, got {type(given).__name__}")
    row = dict(given)
    messages = _take_messages(row)
    parts = row.pop("rewards", None)
    if isinstance(parts, Mapping):
        row |= {f"{PART_PREFIX}{name}": part for name, part in parts.items()}
    elif parts is not None and "reward" not in row:
        row["rewards"] = parts
    facts = {name: row.pop(name) for name in [*row] if _NAMES.get(name, name) in _FACTS}
    extra = as_plain(row.pop("extra", None) or {}) | {str(name): _column(value) for name, value in row.items()}
    known = {_NAMES.get(name, name): (value, name) for name, value in facts.items() if value is not None}
    return RecordedTrajectory(messages, **{name: fact(name, *given) for name, given in known.items()}, extra=extra)


def _take_messages(row: dict[str, Any]) -> tuple[Message, ...]:
    if row.get("messages") is not None:
        return _as_messages(row, "messages")
    names = ", ".join(map(str, row))
    if row.get("prompt") is None and isinstance(row.get("question"), str | list | tuple):
        row["prompt"] = row.pop("question")
    prompt = () if row.get("prompt") is None else _as_messages(row, "prompt", is_generated=False)
    row.pop("prompt", None)
    name = next((name for name in _RESPONSES if row.get(name) is not None), None)
    if name is None:
        raise ValueError(f"expected messages, or a response; the fields are {names[:80] or 'none'}")
    return (*prompt, *_as_messages(row, name, role="assistant"))


def _as_messages(
    row: dict[str, Any], name: str, role: str = "user", *, is_generated: bool = True
) -> tuple[Message, ...]:
    value = row[name]
    if isinstance(value, list | tuple) and value and all(isinstance(item, Message) for item in value):
        return tuple(row.pop(name))
    row[name] = list(value) if isinstance(value, tuple) else value
    messages = messages_of(row, name, role, is_generated=is_generated)
    del row[name]
    return messages


def fact(name: str, value: Any, given_as: str = "") -> Any:  # noqa: ANN401 - as the field is typed
    """Return a fact as it is recorded; one that no field of a trajectory holds is a column.

    Args:
        name: The field.
        value: The value.
        given_as: The name that the loop has for it, for messages; by default the field's.

    Raises:
        ValueError: It is of another type.
    """
    if name in _OF_TOKENS:
        return value
    return checked(name, value, given_as) if name in _FACTS or name == "is_valid" else _column(value)


def _column(value: Any) -> str | float | bool | None:  # noqa: ANN401 - any value of a loop
    plain = as_plain(value)
    return plain if plain is None or isinstance(plain, str | float | bool | int) else str(plain)
