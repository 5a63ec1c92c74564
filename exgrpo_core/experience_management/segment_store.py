"""All segments of a replay buffer's state, as one row of rows."""

import bisect
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.append_file import sync_directory
from exgrpo_core.experience_management.segments import ROW, Segment, SegmentExtent
from exgrpo_core.types import Experience, Trajectory

_NAME = re.compile(r"segment-(\d{6})\.(trajectories|rows)")


class SegmentStore:
    """All segments of a state: sealed ones, and one that grows from the first append after `seal` on."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._first_rows: list[int] = []
        self._growing: Segment | None = None
        self.num_rows = 0
        directory.mkdir(parents=True, exist_ok=True)

    @classmethod
    def restore(cls, directory: Path, extents: Sequence[SegmentExtent], segment_bytes: int) -> "SegmentStore":
        """Open the segments of a snapshot for reading; new rows go into a new one.

        Raises:
            BufferCorruptionError: A file is missing, too short or altered.
        """
        store = cls(directory, segment_bytes)
        for extent in extents:
            store._add(Segment.open_sealed(directory, extent, store.num_rows))
            store.num_rows += extent.num_rows
        return store

    @property
    def extents(self) -> list[SegmentExtent]:
        """What a snapshot keeps of the segments."""
        return [segment.extent for segment in self._segments]

    def append(
        self, trajectory: Trajectory, previous_row: int, token_bytes: bytes, log_prob_bytes: bytes, token_crc32: int
    ) -> None:
        """Append a row to the growing segment; a full one is sealed first."""
        if self._growing is not None and self._growing.trajectories.num_bytes >= self._segment_bytes:
            self.seal()
        if self._growing is None:
            self._growing = Segment.create(self.directory, self._next_name(), self.num_rows)
            self._add(self._growing)
        self._growing.append(trajectory, previous_row, token_bytes, log_prob_bytes, token_crc32)
        self.num_rows += 1

    def segment_of(self, row: int) -> Segment:
        """Return the segment that holds a row."""
        return self._segments[bisect.bisect_right(self._first_rows, row) - 1]

    def experiences(self, rows: Sequence[int]) -> list[Experience]:
        """Read the trajectories of these rows, in their order; all are asked for before the first is waited for.

        Raises:
            BufferCorruptionError: A row does not match its checksum.
        """
        places = [(segment := self.segment_of(row), row, segment.record(row)) for row in rows]
        payloads = [segment.read_ahead(record) for segment, _, record in places]
        return [
            segment.experience(row, record, payload)
            for (segment, row, record), payload in zip(places, payloads, strict=True)
        ]

    def columns(self, *names: str) -> list[NDArray[Any]]:
        """Return columns of the records of all rows."""
        records = [segment.records() for segment in self._segments]
        return [np.concatenate([np.empty(0, ROW[name]), *(part[name] for part in records)]) for name in names]

    def sync(self, with_rows: bool) -> None:
        """Make the appended trajectories durable, and their records if a snapshot will need them."""
        if self._growing is not None:
            self._growing.trajectories.sync()
            if with_rows:
                self._growing.rows.sync()
                sync_directory(self.directory)

    def seal(self) -> None:
        """Close the growing segment for writing; the next append creates another."""
        if self._growing is not None:
            self._growing.trajectories.seal()
            self._growing.rows.seal()
            sync_directory(self.directory)
            self._growing = None

    def close(self) -> None:
        """Close all files."""
        for segment in self._segments:
            segment.trajectories.close()
            segment.rows.close()
        self._growing = None

    def _add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._first_rows.append(segment.first_row)

    def _next_name(self) -> str:
        """Return a name after every segment in the directory, those of other attempts included."""
        numbers = [int(match[1]) for match in map(_NAME.fullmatch, os.listdir(self.directory)) if match]
        return f"segment-{max(numbers, default=0) + 1:06d}"
