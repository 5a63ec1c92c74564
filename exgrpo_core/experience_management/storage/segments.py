"""The replay buffer's segments: all stored rows, in the order in which they were stored.

A segment is a pair of files in the run directory:

- `segment-000001.trajectories`: for each row its T token ids (int32) and then its T log-probs (float32);
- `segment-000001.rows`: for each row one record of `ROW`.

All numbers are little-endian. Rows are numbered over all segments of a state, from 0. Sealed rows are memory-mapped;
trajectories are read with `preadv`, which costs less than the page faults of a map and cannot end the process if
another program cuts the file.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from exgrpo_core.experience_management.storage.append_file import AppendFile, BufferCorruptionError
from exgrpo_core.sums import token_sums
from exgrpo_core.types import Experience, Float32Array, Int32Array, Int64Array, Trajectory

ROW = np.dtype(
    [
        ("trajectory_id", "<i8"),
        ("offset", "<i8"),
        ("question_index", "<i4"),
        ("num_tokens", "<i4"),
        ("rollout_step", "<i4"),
        ("previous_row", "<i4"),
        ("token_checksum", "<u4"),
        ("checksum", "<u4"),
        ("reward", "<f4"),
        ("unused", "<i4"),
    ]
)
"""One stored trajectory, 48 bytes.

`offset` is its first byte in the segment's trajectories, `previous_row` the row that its question had before it, -1 if
none. `token_checksum` is of the token ids, and equal ones may be duplicates; `checksum` is of token ids and log-probs.
"""

TOKEN_BYTES = 8
"""Bytes of one stored token: its id and its log-prob."""

_NAME = re.compile(r"segment-\d+")
_INT32 = np.dtype("<i4")
_FLOAT32 = np.dtype("<f4")


def checksums(arrays: Sequence[Any], starts: Iterable[int]) -> NDArray[np.uint32]:
    """Return the lower 32 bits of xxh3 (B,) of B contiguous arrays; each continues from the number at its position.

    The iterable of numbers may be endless. The arrays are typed Any, since numpy's stubs for Python 3.11 lack buffers.
    """
    return np.array(list(map(xxhash.xxh3_64_intdigest, arrays, starts)), dtype=np.uint64).astype(np.uint32)


def checked_arrays(
    trajectories: Sequence[Trajectory], num_questions: int
) -> tuple[list[Int32Array], list[Float32Array]]:
    """Return contiguous token ids and log-probs of each trajectory.

    Raises:
        ValueError: A trajectory names no question, is empty, or lacks a finite log-prob for a token.
    """
    all_token_ids, all_log_probs = [], []
    for trajectory in trajectories:
        token_ids = np.ascontiguousarray(trajectory.token_ids, _INT32)
        log_probs = np.ascontiguousarray(trajectory.log_probs, _FLOAT32)
        if not 0 <= trajectory.question_index < num_questions:
            raise ValueError(f"question_index: expected 0 to {num_questions - 1}, got {trajectory.question_index}.")
        if token_ids.ndim != 1 or token_ids.size == 0:
            raise ValueError(f"token_ids: trajectory {trajectory.trajectory_id} is empty; store responses only.")
        if log_probs.shape != token_ids.shape:
            raise _bad_log_probs(trajectory, token_ids.size)
        all_token_ids.append(token_ids)
        all_log_probs.append(log_probs)
    # A sum is finite exactly where all numbers are: float32 cannot overflow float64.
    is_finite = np.isfinite(token_sums(all_log_probs))
    if not is_finite.all():
        first = int(np.argmin(is_finite))
        raise _bad_log_probs(trajectories[first], all_token_ids[first].size)
    return all_token_ids, all_log_probs


def _bad_log_probs(trajectory: Trajectory, num_tokens: int) -> ValueError:
    return ValueError(
        f"log_probs: expected {num_tokens} finite numbers for trajectory {trajectory.trajectory_id}, one a token; "
        "check the engine's log-probs."
    )


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """How much of a segment belongs to a state: what a snapshot stores of it."""

    name: str
    num_rows: int
    num_bytes: int
    rows_crc32: int

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise BufferCorruptionError(
                f"segment {self.name[:80]!r}: is not the name of a segment; use another copy of the run."
            )


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
    def create(cls, directory: Path, name: str, first_row: int, writer: Executor) -> "Segment":
        """Create an empty segment under a new name, for `writer` to write."""
        trajectories = AppendFile.create(directory / f"{name}.trajectories", writer)
        return cls(name, first_row, trajectories, AppendFile.create(directory / f"{name}.rows", writer))

    @classmethod
    def open_sealed(cls, directory: Path, extent: SegmentExtent, first_row: int) -> "Segment":
        """Open the part of a segment that a snapshot names, for reading.

        Raises:
            BufferCorruptionError: A file is missing or too short, or the rows differ from what was written.
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
                    f"{rows.path}: its rows differ from what was written (checksum); use another copy of the run."
                )
            at_error.pop_all()
        return segment

    @property
    def extent(self) -> SegmentExtent:
        """What a snapshot stores of this segment."""
        num_rows = self.rows.num_bytes // ROW.itemsize
        return SegmentExtent(self.name, num_rows, self.trajectories.num_bytes, self.rows_crc32)

    def records(self) -> NDArray[np.void]:
        """Return the records of all rows, read-only."""
        return np.frombuffer(self.rows.view(), dtype=ROW)

    def records_of(self, rows: Int64Array) -> NDArray[np.void]:
        """Return a copy of the records of some rows."""
        records = self.records() if self._growing_records is None else np.frombuffer(self._growing_records, ROW)
        return records[rows - self.first_row]

    def append(self, records: NDArray[np.void], payload: bytes) -> None:
        """Append rows and their content, in order; sets the offset of each.

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

    def sync(self) -> None:
        """Make trajectories and rows durable."""
        for file in (self.trajectories, self.rows):
            file.sync()
            file.settle()

    def seal(self) -> None:
        """Make the segment durable and refuse to append from now on."""
        self.sync()
        self.trajectories.seal()
        self.rows.seal()
        self._growing_records = None

    def token_bytes(self, rows: Int64Array) -> list[bytearray]:
        """Return the token ids of some rows as they are stored, without a check, to find duplicates."""
        records = self.records_of(rows)
        spans = zip(records["offset"].tolist(), records["num_tokens"].tolist(), strict=True)
        return [self.trajectories.read(offset, _INT32.itemsize * num_tokens) for offset, num_tokens in spans]


class SegmentReading:
    """Reads trajectories of a segment into one array: requested when made, waited for in `experiences`."""

    def __init__(self, segment: Segment, rows: Int64Array) -> None:
        self._file = segment.trajectories
        self._rows = rows
        self._records = segment.records_of(rows)
        self._num_tokens = self._records["num_tokens"].tolist()
        ends = np.cumsum(2 * self._records["num_tokens"].astype(np.int64))
        self._words: Int32Array = np.empty(ends[-1], _INT32)
        self._ends = ends.tolist()
        content = self._words.data.cast("B")
        size = _INT32.itemsize
        self._parts = [content[size * (end - 2 * length) : size * end] for end, length in self._spans()]
        self._offsets = self._records["offset"].tolist()
        self._missing = self._file.read_ahead(self._offsets, self._parts)

    def experiences(self) -> list[Experience]:
        """Return the trajectories, in the order of the rows.

        Raises:
            BufferCorruptionError: One differs from what was written.
        """
        for i in self._missing:
            self._file.fill(self._offsets[i], self._parts[i])
        words, numbers = self._words, self._words.view(_FLOAT32)
        token_ids = [words[end - 2 * length : end - length] for end, length in self._spans()]
        log_probs = [numbers[end - length : end] for end, length in self._spans()]
        self._check(token_ids, log_probs)
        names = ("trajectory_id", "question_index", "rollout_step", "reward")
        columns = (self._records[name].tolist() for name in names)
        return list(map(Experience, self._rows.tolist(), *columns, token_ids, log_probs))

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self._ends, self._num_tokens, strict=True)

    def _check(self, token_ids: Sequence[Int32Array], log_probs: Sequence[Float32Array]) -> None:
        is_other = checksums(log_probs, checksums(token_ids, repeat(0)).tolist()) != self._records["checksum"]
        if is_other.any():
            row = self._rows[is_other][0]
            raise BufferCorruptionError(
                f"{self._file.path}: row {row} differs from what was written (checksum); use another copy of the run."
            )
