"""The replay buffer's segments: what was stored, in the order in which it was stored.

A segment is a pair of files in the run directory:

- `segment-000001.trajectories`: for each row its T token ids (int32) and then its T log-probs (float32);
- `segment-000001.rows`: for each row one record of `ROW`.

All numbers are little-endian. Rows are numbered over all segments of a state, from 0. Sealed rows are memory-mapped;
trajectories are read where they lie, which costs less than the page faults of a map and cannot end the process when a
file was cut meanwhile.
"""

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
"""One stored trajectory: the fields of `RowRecord`, 48 bytes."""

TOKEN_BYTES = 8
"""Bytes of one stored token: its id and its log-prob."""

_INT32 = np.dtype("<i4")
_FLOAT32 = np.dtype("<f4")


class RowRecord(NamedTuple):
    """One stored trajectory, as its segment knows it."""

    trajectory_id: int
    offset: int
    """First byte in the segment's trajectories."""
    question_index: int
    num_tokens: int
    born_step: int
    previous_row: int
    """The row that its question had before it, -1 if none."""
    token_crc32: int
    """Checksum of the token ids; equal ones may be duplicates."""
    crc32: int
    """Checksum of token ids and log-probs."""
    reward: float


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """How much of a segment belongs to a state: what a snapshot keeps of it."""

    name: str
    num_rows: int
    num_bytes: int
    rows_crc32: int


class Segment:
    """One pair of files and the number of its first row."""

    def __init__(self, name: str, first_row: int, trajectories: AppendFile, rows: AppendFile) -> None:
        self.name = name
        self.first_row = first_row
        self.trajectories = trajectories
        self.rows = rows
        self.rows_crc32 = 0
        self._growing_records = bytearray() if rows.is_growing else None

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
        with ExitStack() as at_error:
            trajectories = AppendFile.open_sealed(directory / f"{extent.name}.trajectories", extent.num_bytes)
            at_error.callback(trajectories.close)
            rows = AppendFile.open_sealed(directory / f"{extent.name}.rows", extent.num_rows * ROW.itemsize)
            at_error.callback(rows.close)
            segment = cls(extent.name, first_row, trajectories, rows)
            segment.rows_crc32 = zlib.crc32(rows.view())
            if segment.rows_crc32 != extent.rows_crc32:
                raise BufferCorruptionError(
                    f"{rows.path}: its rows are not those that were written (checksum); use another copy of the run."
                )
            at_error.pop_all()
        return segment

    @property
    def extent(self) -> SegmentExtent:
        """What a snapshot keeps of this segment."""
        num_rows = self.rows.num_bytes // ROW.itemsize
        return SegmentExtent(self.name, num_rows, self.trajectories.num_bytes, self.rows_crc32)

    def records(self) -> NDArray[np.void]:
        """Return the records of all rows, read-only."""
        return np.frombuffer(self.rows.view(), dtype=ROW)

    def records_of(self, rows: Int64Array) -> list[RowRecord]:
        """Return the records of some rows."""
        records = self.records() if self._growing_records is None else np.frombuffer(self._growing_records, ROW)
        return [RowRecord._make(record[:-1]) for record in records[rows - self.first_row].tolist()]

    def append(self, records: NDArray[np.void], payload: bytes) -> None:
        """Append rows, with the payloads of all of them end to end; fills in where each one begins.

        Raises:
            ValueError: The segment is sealed.
        """
        num_bytes = TOKEN_BYTES * records["num_tokens"].astype(np.int64)
        records["offset"] = self.trajectories.num_bytes + np.cumsum(num_bytes) - num_bytes
        self.trajectories.append(payload)
        content = records.tobytes()
        self.rows.append(content)
        self.rows_crc32 = zlib.crc32(content, self.rows_crc32)
        if self._growing_records is not None:
            self._growing_records += content

    def seal(self) -> None:
        """Make the segment durable and refuse to append from now on."""
        self.trajectories.seal()
        self.rows.seal()
        self._growing_records = None

    def read_ahead(self, records: Sequence[RowRecord]) -> list[bytearray | None]:
        """Return what is stored of rows where that needs no waiting for the disk; else have it read meanwhile."""
        return self.trajectories.read_ahead(
            [record.offset for record in records], [TOKEN_BYTES * record.num_tokens for record in records]
        )

    def experience(self, row: int, record: RowRecord, payload: bytearray | None) -> Experience:
        """Return one trajectory, in arrays of its own, from what `read_ahead` returned.

        Raises:
            BufferCorruptionError: It is not what was written.
        """
        length = record.num_tokens
        if payload is None:
            payload = self.trajectories.read(record.offset, TOKEN_BYTES * length)
        if zlib.crc32(payload) != record.crc32:
            raise BufferCorruptionError(
                f"{self.trajectories.path}: row {row} is not what was written (checksum); use another copy of the run."
            )
        return Experience(
            row,
            record.trajectory_id,
            record.question_index,
            record.born_step,
            record.reward,
            np.frombuffer(payload, _INT32, length),
            np.frombuffer(payload, _FLOAT32, length, _INT32.itemsize * length),
        )

    def token_ids(self, record: RowRecord) -> Int32Array:
        """Return the token ids of one row without checking them, to tell duplicates from others."""
        return np.frombuffer(self.trajectories.read(record.offset, _INT32.itemsize * record.num_tokens), _INT32)
