"""Appends events to an attempt's files; an event is on disk when `append` returns."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from exgrpo_core.durable_files import sync
from jobs.recording.event_codec import encode_event, list_segments, segment_path
from jobs.runs.clock import monotonic_utc_now
from jobs.runs.fencing import exit_if_fenced

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
        self._num_unwritten = 0
        self._file: IO[bytes] | None = None

    def append(self, kind: str, fields: dict[str, Any]) -> None:
        """Write one event and return once it is on disk.

        Raises:
            OSError: It could not be written; the next event goes to a new file.
        """
        self.append_all(kind, [(monotonic_utc_now(), fields)])

    def append_all(self, kind: str, events: Sequence[tuple[datetime, dict[str, Any]]]) -> None:
        """Write events of one kind with their times, as `append` does.

        After a failure they have `num_unwritten`, the number of events before them that may be missing.
        """
        exit_if_fenced()
        unwritten = {"num_unwritten": self._num_unwritten} if self._num_unwritten else {}
        self._num_unwritten += len(events)
        lines = b"".join(self._line(kind, at, fields | unwritten) for at, fields in events)
        file = self._open_file()
        try:
            _write_all(file, lines)
            os.fsync(file.fileno())
        except OSError:
            self.close()
            raise
        self._num_unwritten = 0
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
