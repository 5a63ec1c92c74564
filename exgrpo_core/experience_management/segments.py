"""The replay buffer's segments: what was stored, in the order in which it was stored.

A segment is a pair of files in the run directory:

- `segment-000001.trajectories`: for each row its T token ids (int32) and then its T log-probs (float32);
- `segment-000001.rows`: for each row one record of `ROW`.

All numbers are little-endian. Rows are numbered over all segments of a state, from 0.
"""

import mmap
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.append_file import AppendFile
from exgrpo_core.experience_management.corruption import BufferCorruptionError
from exgrpo_core.types import Experience, Int32Array, Int64Array

ROW = np.dtype(
    [
        ("trajectory_id", "<i8"),
        ("offset", "<i8"),
        ("question_index", "<i4"),
        ("num_tokens", "<i4"),
        ("born_step", "<i4"),
        ("previous_row", "<i4"),
        ("token_crc32", "<u4"),
        ("crc32", "<u4"),
        ("reward", "<f4"),
        ("unused", "<i4"),
    ]
)
"""One stored trajectory. `offset` is its byte in the segment, `previous_row` the row that its question had before it
(-1 if none), `token_crc32` of its token ids, `crc32` of token ids and log-probs."""

_RECORD = struct.Struct("<qqiiiiIIfi")

Rows = NDArray[np.void]

TOKEN_BYTES = 8
"""Bytes of one stored token: its id and its log-prob."""

_PAGE = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """How much of a segment belongs to a state: what a snapshot keeps of it."""

    name: str
    num_rows: int
    num_bytes: int
    rows_crc32: int


@dataclass(frozen=True, slots=True)
class RowRecord:
    """What is known of a row before it has a place; the fields are those of `ROW`."""

    trajectory_id: int
    question_index: int
    born_step: int
    previous_row: int
    token_crc32: int
    reward: float


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Id and token ids of a stored trajectory."""

    trajectory_id: int
    token_ids: Int32Array


class Segment:
    """One pair of files and the number of its first row."""

    def __init__(self, name: str, first_row: int, trajectories: AppendFile, rows: AppendFile) -> None:
        self.name = name
        self.first_row = first_row
        self.trajectories = trajectories
        self.rows = rows
        self.rows_crc32 = 0

    @classmethod
    def create(cls, directory: Path, name: str, first_row: int) -> "Segment":
        """Create an empty segment under a new name."""
        trajectories = AppendFile.create(directory / f"{name}.trajectories")
        return cls(name, first_row, trajectories, AppendFile.create(directory / f"{name}.rows"))

    @classmethod
    def open_sealed(cls, directory: Path, extent: SegmentExtent, first_row: int) -> "Segment":
        """Open what a snapshot names of a segment, for reading.

        Raises:
            BufferCorruptionError: A file is missing or too short, or the rows are not those that were written.
        """
        trajectories = AppendFile.open_sealed(directory / f"{extent.name}.trajectories", extent.num_bytes)
        rows = AppendFile.open_sealed(directory / f"{extent.name}.rows", extent.num_rows * ROW.itemsize)
        segment = cls(extent.name, first_row, trajectories, rows)
        segment.rows_crc32 = zlib.crc32(segment.records().data) if extent.num_rows else 0
        if segment.rows_crc32 != extent.rows_crc32:
            raise BufferCorruptionError(
                f"{rows.path}: its rows are not those that were written (checksum); use another copy of the run."
            )
        return segment

    @property
    def num_rows(self) -> int:
        """Rows in this segment."""
        return self.rows.num_bytes // ROW.itemsize

    @property
    def extent(self) -> SegmentExtent:
        """What a snapshot keeps of this segment."""
        return SegmentExtent(self.name, self.num_rows, self.trajectories.num_bytes, self.rows_crc32)

    def records(self) -> Rows:
        """Return the records of all rows, read-only."""
        if self.num_rows == 0:
            return np.empty(0, dtype=ROW)
        return np.frombuffer(self.rows.mapped(self.rows.num_bytes), dtype=ROW, count=self.num_rows)

    def append(self, record: RowRecord, token_bytes: bytes, log_prob_bytes: bytes) -> None:
        """Append one row; its place and checksum are worked out here."""
        crc32 = zlib.crc32(log_prob_bytes, record.token_crc32)
        written = _RECORD.pack(
            record.trajectory_id,
            self.trajectories.num_bytes,
            record.question_index,
            len(token_bytes) // 4,
            record.born_step,
            record.previous_row,
            record.token_crc32,
            crc32,
            record.reward,
            0,
        )
        self.trajectories.append(token_bytes)
        self.trajectories.append(log_prob_bytes)
        self.rows.append(written)
        self.rows_crc32 = zlib.crc32(written, self.rows_crc32)

    def experiences(self, rows: Int64Array, records: Rows) -> list[Experience]:
        """Read the trajectories of these rows into arrays of their own, each checked against its checksum."""
        num_tokens = records["num_tokens"].astype(np.int64)
        stored = self._payload(records["offset"], num_tokens)
        packed = np.empty(2 * int(num_tokens.sum()), dtype=np.int32)
        packed_bytes = packed.data.cast("B")
        log_probs = packed.view(np.float32)
        names = ("trajectory_id", "question_index", "born_step", "reward", "offset", "num_tokens", "crc32")
        columns = zip(rows.tolist(), *(records[name].tolist() for name in names), strict=True)
        experiences = []
        start = 0
        for row, trajectory_id, question_index, born_step, reward, offset, length, crc32 in columns:
            middle, end = start + length, start + 2 * length
            packed[start:end] = stored[offset // 4 : offset // 4 + 2 * length]
            if zlib.crc32(packed_bytes[4 * start : 4 * end]) != crc32:
                raise self._altered(row)
            tokens, probabilities = packed[start:middle], log_probs[middle:end]
            experiences.append(Experience(row, trajectory_id, question_index, born_step, reward, tokens, probabilities))
            start = end
        return experiences

    def stored(self, position: int) -> StoredRow:
        """Return the row at `position` of this segment, as it lies in the file."""
        record = self.records()[position]
        offset, length = int(record["offset"]), int(record["num_tokens"])
        mapped = self.trajectories.mapped(offset + TOKEN_BYTES * length)
        return StoredRow(int(record["trajectory_id"]), np.frombuffer(mapped, "<i4", length, offset))

    def _payload(self, offsets: Int64Array, num_tokens: Int64Array) -> Int32Array:
        """Return the mapped file after asking the kernel for the pages of these rows all at once."""
        ends = offsets + TOKEN_BYTES * num_tokens
        mapped = self.trajectories.mapped(int(ends.max()))
        for start, end in _page_runs(offsets, ends):
            mapped.madvise(mmap.MADV_WILLNEED, start, min(end, len(mapped)) - start)
        return np.frombuffer(mapped, dtype="<i4")

    def _altered(self, row: int) -> BufferCorruptionError:
        return BufferCorruptionError(
            f"{self.trajectories.path}: row {row} is not what was written (checksum); use another copy of the run."
        )


def _page_runs(offsets: Int64Array, ends: Int64Array) -> list[tuple[int, int]]:
    """Return (start, end) of the pages that hold these byte ranges, neighbours joined."""
    order = np.argsort(offsets)
    starts = offsets[order] // _PAGE * _PAGE
    stops = np.maximum.accumulate(ends[order])
    is_first = np.concatenate(([True], starts[1:] > stops[:-1]))
    is_last = np.concatenate((is_first[1:], [True]))
    return list(zip(starts[is_first].tolist(), stops[is_last].tolist(), strict=True))
