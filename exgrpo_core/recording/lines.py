"""The lines of a recording: one JSON object a line, checksummed; `docs/recording.md` describes them.

Values of tokens are texts: base64 of little-endian int32 or float32. A list of numbers is read as well.
"""

import base64
import binascii
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from exgrpo_core.recording.conversations import as_document, from_document
from exgrpo_core.recording.rows import RecordedTrajectory

FILE_PREFIX = "rollouts-"
"""Beginning of the names of recordings in an attempt's folder: `rollouts-RANK-of-RANKS.jsonl`."""
_TOKEN_VALUES = {"token_ids": "<i4", "log_probs": "<f4", "entropies": "<f4"}
_OPTIONAL = {
    field.name: field.default
    for field in fields(RecordedTrajectory)
    if field.name not in {"messages", "extra", *_TOKEN_VALUES}
}
_TYPES: dict[str, type] = {
    **dict.fromkeys(("reward", "advantage", "mean_entropy"), float),
    **dict.fromkeys(("is_truncated", "is_generated", "is_error", "is_valid"), bool),
    "num_tokens": int,
}
"""Of what is no text."""
_NAMES = frozenset({"question_id", "group", "answer", "verdict"})
"""Texts that loops have as numbers too."""
ANNOTATED = ("reward", "verdict", "is_valid", "advantage")
"""What an annotation may change; other facts in it are columns."""
MAX_COUNT = 2**31 - 1
"""What a database holds as a count."""


def recording_path(attempt_path: Path, rank: int, num_ranks: int) -> Path:
    """Return the file in which a rank records."""
    return attempt_path / f"{FILE_PREFIX}{rank:04d}-of-{num_ranks:04d}.jsonl"


def trajectory_fields(trajectory: RecordedTrajectory) -> dict[str, Any]:
    """Return what a line says of a trajectory; facts that are not known are left out."""
    given: dict[str, Any] = {"messages": as_document(trajectory.messages)}
    given |= {name: value for name in _OPTIONAL if (value := getattr(trajectory, name)) is not None}
    for name, kind in _TOKEN_VALUES.items():
        values = getattr(trajectory, name)
        if values is not None:
            given[name] = base64.b64encode(_as_array(values, kind).tobytes()).decode()
    return given | ({"extra": dict(trajectory.extra)} if trajectory.extra else {})


def parse_trajectory(line: Mapping[str, Any]) -> RecordedTrajectory:
    """Return the trajectory of a line, with its token values as arrays.

    Raises:
        ValueError: A field is of another type; names it.
    """
    try:
        messages = from_document([_known(message, message) for message in line["messages"]])
    except (AttributeError, KeyError, TypeError):
        raise ValueError("messages: expected a list of messages, each with role and text") from None
    values = _known(line, _OPTIONAL)
    values |= {name: token_values(line, name) for name in _TOKEN_VALUES}
    extra = line.get("extra", {})
    if not isinstance(extra, dict):
        raise ValueError("extra: expected a mapping")
    return RecordedTrajectory(messages, **values, extra=extra)


def parse_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an annotation says of a trajectory.

    Raises:
        ValueError: A fact is of another type.
    """
    return {**facts, **_known(facts, ANNOTATED)}


def token_values(line: Mapping[str, Any], name: str) -> npt.NDArray[Any] | None:
    """Return a value of each generated token, None where the line has none.

    Raises:
        ValueError: It is neither a list of numbers nor base64.
    """
    values = line.get(name)
    if values is None:
        return None
    try:
        if isinstance(values, str):
            return np.frombuffer(base64.b64decode(values, validate=True), dtype=_TOKEN_VALUES[name])
        if not isinstance(values, list):
            raise TypeError
        return np.array([float(value) for value in values]).astype(_TOKEN_VALUES[name])
    except (TypeError, ValueError, OverflowError, binascii.Error):
        raise ValueError(f"{name}: expected numbers, or their bytes in base64") from None


def _known(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: checked(name, fields[name]) for name in names if fields.get(name) is not None}


def checked(name: str, value: object) -> Any:  # noqa: ANN401 - as the field is typed
    """Return a fact of a trajectory or a message as its field has it; numbers are of Python, numpy or torch.

    Raises:
        ValueError: It is of another type, or a count is out of range.
    """
    kind = _TYPES.get(name, str)
    if kind is str and (isinstance(value, str) or name in _NAMES):
        return str(value)
    if kind is float and isinstance(value, str):  # NaN and infinities are written as texts
        with contextlib.suppress(ValueError):
            return float(value)
    number = None if kind is str else as_number(value)
    if number is None or (kind is int and not (number.is_integer() and 0 <= number <= MAX_COUNT)):
        wanted = {str: "text", int: f"a whole number up to {MAX_COUNT:,}"}.get(kind, "a number")
        raise ValueError(f"{name}: expected {wanted}, got {str(value)[:40]!r}")
    return kind(number)


def _as_array(values: Sequence[float], kind: str) -> npt.NDArray[Any]:
    given: Any = values
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = (given.float() if kind.startswith("<f") else given).numpy()
    return np.asarray(given).astype(kind)


def as_number(value: Any) -> float | None:  # noqa: ANN401 - numbers of any library
    """Return a number of Python, numpy or torch as a float, None of anything else."""
    if isinstance(value, str | bytes | bytearray) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return number


def as_plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value that JSON can hold: what else there is becomes a number or a text."""
    if value is None or isinstance(value, (str, bool, int)):  # a union takes longer to look through
        return value
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    number = as_number(value)
    return str(value) if number is None else number
