"""All segments of a replay buffer's state, with rows numbered over all of them."""

import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.durable_files import sync
from exgrpo_core.experience_management.storage.memory_index import RowIndex
from exgrpo_core.experience_management.storage.segments import ROW, Segment, SegmentExtent, SegmentReading
from exgrpo_core.types import Experience, Int32Array, Int64Array

_NAME = re.compile(r"segment-(\d{6})\.(trajectories|rows)")


class SegmentStore:
    """All segments of a state: sealed ones, and one that grows from the first append after `seal`."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay-buffer")
        self._segments: list[Segment] = []
        self._first_rows: list[int] = []
        self._growing: Segment | None = None
        self.num_rows = 0
        directory.mkdir(parents=True, exist_ok=True)

    @classmethod
    def restore(cls, directory: Path, extents: Sequence[SegmentExtent], segment_bytes: int) -> "SegmentStore":
        """Open the segments of a state for reading; new rows go into a new one.

        Raises:
            BufferCorruptionError: A file is missing, too short or altered.
        """
        store = cls(directory, segment_bytes)
        try:
            for extent in extents:
                store._add(Segment.open_sealed(directory, extent, store.num_rows))
                store.num_rows += extent.num_rows
        except BaseException:
            store.close()
            raise
        return store

    @property
    def extents(self) -> list[SegmentExtent]:
        """The part of each segment that belongs to the state: what a snapshot stores."""
        return [segment.extent for segment in self._segments]

    def append(self, records: NDArray[np.void], payload: bytes) -> None:
        """Append rows and their content to the growing segment; a full one is sealed first."""
        if self._growing is not None and self._growing.trajectories.num_bytes >= self._segment_bytes:
            self.seal()
        if self._growing is None:
            self._growing = Segment.create(self.directory, self._next_name(), self.num_rows, self._writer)
            self._add(self._growing)
        self._growing.append(records, payload)
        self.num_rows += records.size

    def token_bytes(self, rows: Int64Array) -> list[bytearray]:
        """Return the token ids of these rows as they are stored, without a check, to find duplicates."""
        contents: list[Any] = [None] * rows.size
        for segment, positions in self._by_segment(rows):
            for position, content in zip(positions.tolist(), segment.token_bytes(rows[positions]), strict=True):
                contents[position] = content
        return contents

    def numbers(self, name: str, rows: Int64Array) -> NDArray[Any]:
        """Return one column of the records of these rows."""
        numbers = np.empty(rows.size, dtype=ROW[name])
        for segment, positions in self._by_segment(rows):
            numbers[positions] = segment.records_of(rows[positions])[name]
        return numbers

    def experiences(self, rows: Int64Array) -> list[Experience]:
        """Read the trajectories of these rows, in their order; all reads are requested before the first is waited for.

        Raises:
            BufferCorruptionError: A row does not match its checksum.
        """
        readings = [
            (positions, SegmentReading(segment, rows[positions])) for segment, positions in self._by_segment(rows)
        ]
        experiences: list[Any] = [None] * rows.size
        for positions, reading in readings:
            for position, experience in zip(positions.tolist(), reading.experiences(), strict=True):
                experiences[position] = experience
        return experiences

    def columns(self, *names: str) -> list[NDArray[Any]]:
        """Return columns of the records of all rows."""
        records = [segment.records() for segment in self._segments]
        return [np.concatenate([np.empty(0, ROW[name]), *(part[name] for part in records)]) for name in names]

    def sync(self) -> None:
        """Make the appended trajectories and their records durable."""
        if self._growing is not None:
            self._growing.sync()
            sync(self.directory)

    def seal(self) -> None:
        """Close the growing segment for writing; the next append creates another."""
        if self._growing is not None:
            self._growing.seal()
            sync(self.directory)
            self._growing = None

    def forget(self, first_row: int) -> int:
        """Close the sealed segments that end before `first_row`, number the other rows from 0, return how many went."""
        num_rows = 0
        for segment in list(self._segments):
            end = segment.first_row + segment.extent.num_rows
            if segment is self._growing or end > first_row:
                break
            num_rows = end
            self._segments.remove(segment)
            segment.trajectories.close()
            segment.rows.close()
        for segment in self._segments:
            segment.first_row -= num_rows
        self._first_rows = [segment.first_row for segment in self._segments]
        self.num_rows -= num_rows
        return num_rows

    def close(self) -> None:
        """Close all files."""
        with ExitStack() as at_end:
            at_end.callback(self._writer.shutdown)
            for segment in self._segments:
                at_end.callback(segment.trajectories.close)
                at_end.callback(segment.rows.close)
        self._growing = None

    def _add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._first_rows.append(segment.first_row)

    def _by_segment(self, rows: Int64Array) -> list[tuple[Segment, Int64Array]]:
        if len(self._segments) == 1 and rows.size:
            return [(self._segments[0], np.arange(rows.size))]
        owners = np.searchsorted(self._first_rows, rows, side="right") - 1
        return [(self._segments[number], np.flatnonzero(owners == number)) for number in np.unique(owners)]

    def _next_name(self) -> str:
        """Return a name after every segment in the directory, those of other attempts included."""
        numbers = [int(match[1]) for match in map(_NAME.fullmatch, os.listdir(self.directory)) if match]
        return f"segment-{max(numbers, default=0) + 1:06d}"


def remove_old_segments(directory: Path, needed: Collection[str]) -> None:
    """Remove the files of segments that are not needed and older than the newest that is; names have no ending."""
    newest = max(needed, default="")
    for name in os.listdir(directory):
        segment = name.partition(".")[0]
        if _NAME.fullmatch(name) and segment < newest and segment not in needed:
            (directory / name).unlink(missing_ok=True)


def locate(
    index: RowIndex,
    store: SegmentStore,
    questions: Int64Array,
    token_ids: Sequence[Int32Array],
    token_checksums: NDArray[np.uint32],
) -> tuple[list[int], list[int]]:
    """Return the row of each trajectory and which trajectories are new.

    A duplicate has the row of its equal, which was stored before or comes earlier in the same call.
    """
    keys = list(zip(questions.tolist(), token_checksums.tolist(), strict=True))
    key_of = {row: keys[i] for i, row in index.rows_with(questions, token_checksums)}
    rows_of_key: dict[tuple[int, int], list[int]] = {}
    for row, key in key_of.items():
        rows_of_key.setdefault(key, []).append(row)
    stored = np.fromiter(key_of, dtype=np.int64, count=len(key_of))
    contents = dict(zip(key_of, store.token_bytes(stored), strict=True))
    rows: list[int] = []
    new: list[int] = []
    num_stored = index.num_rows

    def content_of(row: int) -> bytes | bytearray:
        return contents[row] if row < num_stored else token_ids[new[row - num_stored]].tobytes()

    for i, key in enumerate(keys):
        candidates = rows_of_key.setdefault(key, [])
        duplicate = next((row for row in candidates if content_of(row) == token_ids[i].tobytes()), None)
        if duplicate is None:
            duplicate = num_stored + len(new)
            candidates.append(duplicate)
            new.append(i)
        rows.append(duplicate)
    return rows, new
