"""The event files of an attempt: one JSON object a line, numbered and checksummed.

A line is `{"seq":...,"at":...,"kind":...,"attempt":...,<fields>,"crc":N}`; N is the CRC-32 of the line without its
`crc` field. Floats that JSON cannot express are the strings NaN, Infinity and -Infinity, which `float` reads.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.checksums import seal, unseal

_SEGMENT = re.compile(r"events-([0-9]{6,9})\.jsonl")


def segment_path(attempt_path: Path, segment: int) -> Path:
    """Return the event file of a number, from 1."""
    return attempt_path / f"events-{segment:06d}.jsonl"


def list_segments(attempt_path: Path) -> list[int]:
    """Return the numbers of an attempt's event files, in order."""
    matches = (_SEGMENT.fullmatch(path.name) for path in attempt_path.glob("events-*.jsonl"))
    return sorted(int(match[1]) for match in matches if match)


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


def is_event(event: dict[str, Any]) -> bool:
    """Return whether a line has the fields by which events are read; one that another program wrote may not."""
    numbers = (event.get("seq"), event.get("attempt"), event.get("num_unwritten", 0), event.get("step", 0))
    if not (isinstance(event.get("kind"), str) and all(isinstance(number, int) and number >= 0 for number in numbers)):
        return False
    if event["kind"] == "step":
        return "step" in event and isinstance(event.get("file"), str | None)
    return event["kind"] != "questions" or isinstance(event.get("file"), str)


def _dump(event: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _with_named_floats(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _with_named_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_named_floats(item) for item in value]
    return value
