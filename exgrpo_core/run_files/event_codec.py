"""The event files of an attempt: one JSON object a line, numbered and checksummed.

A line is `{"seq":...,"at":...,"kind":...,"attempt":...,<fields>,"crc":N}`, of `exgrpo_core.run_files.event_lines`.
"""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from exgrpo_core.durable_files import sync
from exgrpo_core.run_files.attempt_gate import exit_if_fenced
from exgrpo_core.run_files.event_lines import encode_event

_SEGMENT = re.compile(r"events-([0-9]{6,9})\.jsonl")


def segment_path(attempt_path: Path, segment: int) -> Path:
    """Return the event file of a number, from 1."""
    return attempt_path / f"events-{segment:06d}.jsonl"


def list_segments(attempt_path: Path) -> list[int]:
    """Return the numbers of an attempt's event files, in order."""
    matches = (_SEGMENT.fullmatch(path.name) for path in attempt_path.glob("events-*.jsonl"))
    return sorted(int(match[1]) for match in matches if match)


def is_event(event: dict[str, Any]) -> bool:
    """Return whether a line has the fields by which events are read; one that another program wrote may not."""
    numbers = (event.get("seq"), event.get("attempt"), event.get("step", 0))
    if not (isinstance(event.get("kind"), str) and all(isinstance(number, int) and number >= 0 for number in numbers)):
        return False
    if event["kind"] == "step":
        return "step" in event and isinstance(event.get("file"), str | None)
    return event["kind"] != "questions" or isinstance(event.get("file"), str)


MAX_SEGMENT_BYTES = 8 << 20


class EventWriter:
    """The one writer of an attempt's events. It only appends; after a failed write it opens a new file."""

    def __init__(self, attempt_path: Path, attempt: int, max_segment_bytes: int = MAX_SEGMENT_BYTES) -> None:
        self._attempt_path = attempt_path
        self._attempt = attempt
        self._max_segment_bytes = max_segment_bytes
        existing = list_segments(attempt_path)
        if existing:
            raise FileExistsError(f"{attempt_path}: holds events already; claim a new attempt to write.")
        self._segment = 0
        self._num_events = 0
        self._file: IO[bytes] | None = None

    def append(self, kind: str, fields: dict[str, Any]) -> None:
        """Write one event and return once it is on disk.

        Raises:
            OSError: It could not be written; the next event goes to a new file.
        """
        self.append_all(kind, [(datetime.now(UTC), fields)])

    def append_all(self, kind: str, events: Sequence[tuple[datetime, dict[str, Any]]]) -> None:
        """Write events of one kind with their times, as `append` does."""
        exit_if_fenced()
        lines = b"".join(self._line(kind, at, fields) for at, fields in events)
        file = self._open_file()
        try:
            _write_all(file, lines)
            os.fsync(file.fileno())
        except OSError:
            self.close()
            raise
        if file.tell() >= self._max_segment_bytes:
            self.close()

    def close(self) -> None:
        """Close the file; a second call changes nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, kind: str, at: datetime, fields: dict[str, Any]) -> bytes:
        self._num_events += 1  # even if the write fails: the line may be on disk completely
        event = {
            "seq": self._num_events,
            "at": at.isoformat(timespec="milliseconds"),
            "kind": kind,
            "attempt": self._attempt,
        }
        return encode_event(event | fields)

    def _open_file(self) -> IO[bytes]:
        if self._file is None:
            self._segment += 1
            # Unbuffered, so that a failed write leaves nothing in a buffer to be written later.
            self._file = segment_path(self._attempt_path, self._segment).open("xb", buffering=0)
            sync(self._attempt_path)
        return self._file


def _write_all(file: IO[bytes], lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[file.write(rest) :]
