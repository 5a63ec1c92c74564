"""Lines of a run's files: one JSON object a line, checksummed.

A line ends with `"crc":N`; N is the CRC-32 of the line without that field. Floats that JSON cannot express are the
strings NaN, Infinity and -Infinity, which `float` reads.
"""

import json
import math
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError, seal, unseal


def encode_event(event: dict[str, Any]) -> bytes:
    """Return the event's line, newline included."""
    try:
        body = _dump(event)
    except ValueError:
        body = _dump(_with_named_floats(event))
    return seal(body.encode("utf-8", "backslashreplace")) + b"\n"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line without its newline, None if the line is damaged."""
    try:
        return unseal(line)
    except UnreadableFileError:
        return None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _dump(event: Any) -> str:  # noqa: ANN401 - any JSON value
    return _ENCODER.encode(event)


def _with_named_floats(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _with_named_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_named_floats(item) for item in value]
    return value
