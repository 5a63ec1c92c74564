"""The lines of a record: one JSON object each, its kind first; `docs/recording.md` describes them.

Floats that JSON cannot express are the strings NaN, Infinity and -Infinity, which `float` reads. Values of tokens are
texts: base64 of the numbers' bytes in planes, all first bytes before all second ones, since these pack better.
"""

import base64
import binascii
import contextlib
import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.recording.conversations import as_document, from_document
from exgrpo_core.recording.record_file import read_member
from exgrpo_core.recording.rows import Message, RecordedTrajectory
from exgrpo_core.sums import mean_of
from exgrpo_core.types import SEEN_VALUES

TOKENS = "tokens"
"""The kind of a line with values of tokens, which only displays of one trajectory read."""
TOKEN_VALUES = {
    "token_ids": "<i4",
    "log_probs": "<f4",
    "entropies": "<f2",
    "behavior_log_probs": "<f4",
} | dict.fromkeys(SEEN_VALUES, "<f4")
_MEANS = {"mean_log_prob": "log_probs", "mean_entropy": "entropies"}
_OPTIONAL = {
    field.name: field.default
    for field in fields(RecordedTrajectory)
    if field.name not in {"messages", "extra", *TOKEN_VALUES}
}
_TYPES: dict[str, type] = {
    **dict.fromkeys(("reward", "advantage", "mean_entropy", "mean_log_prob"), float),
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


def encode_line(kind: str, values: Mapping[str, Any]) -> bytes:
    """Return a line, newline included."""
    line = {"kind": kind, **values}
    try:
        text = _ENCODER.encode(line)
    except ValueError:
        text = _ENCODER.encode(_with_named_floats(line))
    return text.encode("ascii") + b"\n"


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def _with_named_floats(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _with_named_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_named_floats(item) for item in value]
    return value


def trajectory_lines(step: int, name: str, at: str, trajectory: RecordedTrajectory) -> tuple[bytes, bytes | None]:
    """Return the line of a loop's trajectory, without facts that are not known, and that of its tokens, if it has any.

    Raises:
        ValueError: Values of tokens are no numbers, or not as many of each kind.
    """
    given = {value: getattr(trajectory, value, None) for value in TOKEN_VALUES}
    arrays = {value: _as_array(array, value) for value, array in given.items() if array is not None}
    if len(lengths := {array.size for array in arrays.values()}) > 1:
        raise ValueError(f"{', '.join(arrays)}: expected a value of each for each token, got {sorted(lengths)} of them")
    facts = {fact: value for fact in _OPTIONAL if (value := getattr(trajectory, fact)) is not None}
    if arrays and "num_tokens" not in facts:
        facts["num_tokens"] = len(next(iter(arrays.values())))
    facts |= {mean: mean_of(arrays[of]) for mean, of in _MEANS.items() if of in arrays and arrays[of].size}
    if trajectory.extra:
        facts["extra"] = dict(trajectory.extra)
    fields = {"step": step, "at": at, "id": name, "messages": as_document(trajectory.messages), **facts}
    return encode_line("trajectory", fields), tokens_line(step, name, arrays) if arrays else None


def tokens_line(step: int, name: str | int, arrays: Mapping[str, Any], *, is_replayed: bool = False) -> bytes:
    """Return the line with the values of the tokens of a trajectory, which `read_tokens` reads."""
    line = encode_line(TOKENS, {"step": step, "id": name, "is_replayed": is_replayed})
    known = ((value, array) for value, array in arrays.items() if array is not None)
    texts = (b',"%s":"%s"' % (value.encode(), _as_text(array, TOKEN_VALUES[value])) for value, array in known)
    return b"".join((line[:-2], *texts, b"}\n"))


def _as_text(values: npt.NDArray[Any], kind: str) -> bytes:
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(values, dtype=kind)
    bits = array.view(f"<u{array.itemsize}")
    return base64.b64encode(b"".join((bits >> 8 * place).astype(np.uint8).tobytes() for place in range(bits.itemsize)))


def read_tokens(path: Path, place: str, trajectory_id: int, replayed_in: int | None = None) -> dict[str, Any]:
    """Return a trajectory's values of tokens as generated, or as replayed in a step; None of those that were not kept.

    Args:
        path: The file of the record.
        place: The byte where the member begins and, of a loop's trajectory, a colon and the id that its line has.
        trajectory_id: The number of the trajectory, of one without such an id.
        replayed_in: The step that replayed it.

    Raises:
        KeyError: There are no values of such a trajectory.
        UnreadableFileError: They are damaged.
    """
    begin, _, name = place.partition(":")
    wanted = name or trajectory_id, replayed_in
    member = read_member(path, int(begin))
    found = parse_token_arrays(path, member.lines() if member else (), {wanted})
    if wanted not in found:
        raise KeyError(f"{path}: holds no tokens of trajectory {name or trajectory_id} there.")
    return {value: None if array is None else array.tolist() for value, array in found[wanted].items()}


def parse_token_arrays(
    path: Path, lines: Iterable[bytes], wanted: Container[tuple[str | int, int | None]]
) -> dict[tuple[str | int, int | None], dict[str, Any]]:
    """Return arrays of the values of tokens in the lines of a member, each by (id, step that replayed it).

    Raises UnreadableFileError if they are damaged.
    """
    found: dict[tuple[str | int, int | None], dict[str, Any]] = {}
    for line in lines:
        if line.startswith(_BEGIN_OF_TOKENS):
            values = parse_json(line)
            place = values.get("id"), values.get("step") if values.get("is_replayed") else None
            if place in wanted and place not in found:
                found[place] = _parse_values(path, values)
    return found


def _parse_values(path: Path, line: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arrays = {name: _from_text(line[name], kind) for name, kind in TOKEN_VALUES.items() if name in line}
        if len({array.size for array in arrays.values()}) > 1 or (arrays.get("token_ids", np.zeros(1)) < 0).any():
            raise ValueError
    except (TypeError, ValueError, binascii.Error):
        raise UnreadableFileError(f"{path}: values of tokens are damaged; use another copy of the run.") from None
    return {name: arrays.get(name) for name in TOKEN_VALUES}


def _from_text(text: str, kind: str) -> npt.NDArray[Any]:
    planes = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    return np.ascontiguousarray(planes.reshape(np.dtype(kind).itemsize, -1).T).view(kind).ravel()


_BEGIN_OF_TOKENS = b'{"kind":"%s"' % TOKENS.encode()


def parse_lines(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the lines of a member but those of tokens; a line without a time has that of the line before.

    Raises:
        UnreadableFileError: A line is no mapping.
    """
    at, found = "", []
    for line in lines:
        if not line.startswith(_BEGIN_OF_TOKENS):
            value = parse_json(line)
            if not isinstance(value, dict):
                raise UnreadableFileError("expected a mapping of fields.")
            at = value.setdefault("at", at)
            found.append(value)
    return found


def parse_trajectory(line: Mapping[str, Any]) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """Return the messages and the known facts of a loop's trajectory.

    Raises:
        ValueError: A field is of another type; names it.
    """
    try:
        messages = from_document([_known(message, message) for message in line["messages"]])
    except (AttributeError, KeyError, TypeError):
        raise ValueError("messages: expected a list of messages, each with role and text") from None
    extra = line.get("extra", {})
    if not isinstance(extra, dict):
        raise ValueError("extra: expected a mapping")
    return messages, _known(line, (*_OPTIONAL, *_MEANS)) | {"extra": extra}


def parse_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an annotation says of a trajectory.

    Raises:
        ValueError: A fact is of another type.
    """
    return {**facts, **_known(facts, ANNOTATED)}


def _known(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: checked(name, fields[name]) for name in names if fields.get(name) is not None}


def checked(name: str, value: object, given_as: str = "") -> Any:  # noqa: ANN401 - as the field is typed
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
        wanted = {str: "text", int: f"a whole number up to {MAX_COUNT:,}"}.get(kind, "one number")
        raise ValueError(f"{given_as or name}: expected {wanted}, got {str(value)[:40]!r}")
    return kind(number)


def _as_array(values: Sequence[float], name: str) -> npt.NDArray[Any]:
    given: Any = values
    is_float = name != "token_ids"
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = (given.float() if is_float else given).numpy()
    return np.asarray(given).astype("<f4" if is_float else "<i4")


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
        # Python writes no decimal number of thousands of digits.
        return hex(value) if isinstance(value, int) and value.bit_length() > 1 << 13 else value
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    if getattr(value, "ndim", None) == 0:  # a number of numpy or torch: a seed stays whole
        return as_plain(value.item())
    number = as_number(value)
    return str(value) if number is None else number
