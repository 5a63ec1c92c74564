"""A file that only grows: nothing in it is ever rewritten or truncated."""

import errno
import mmap
import os
from collections.abc import Sequence
from operator import add
from pathlib import Path

from exgrpo_core.experience_management.corruption import BufferCorruptionError

MAX_PENDING_BYTES = 8 << 20
"""Appended bytes that may wait in memory for the next write."""

# Without these (other systems than Linux) a file is synced as a whole and read without asking ahead.
_sync_data = getattr(os, "fdatasync", os.fsync)
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", None)


class AppendFile:
    """The first `num_bytes` of a file; what may lie behind them belongs to an attempt that was given up.

    One process appends, one thread uses it. Appended bytes are gathered, and written before they are read or synced.
    """

    def __init__(self, path: Path, descriptor: int, num_bytes: int, is_growing: bool) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self.is_growing = is_growing
        self._descriptor = descriptor
        self._pending: list[bytes] = []
        self._num_written = num_bytes
        self._view: memoryview | None = None

    @classmethod
    def create(cls, path: Path) -> "AppendFile":
        """Create the file for appending; it must not be there yet."""
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), 0, is_growing=True)

    @classmethod
    def open_sealed(cls, path: Path, num_bytes: int) -> "AppendFile":
        """Open the first `num_bytes` of a file for reading.

        Raises:
            BufferCorruptionError: The file is missing or shorter.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise BufferCorruptionError(
                f"{path}: cannot be read ({error.strerror}), but the buffer's snapshot needs it; use a complete copy "
                "of the run."
            ) from error
        size = os.fstat(descriptor).st_size
        if size < num_bytes:
            os.close(descriptor)
            raise BufferCorruptionError(
                f"{path}: expected at least {num_bytes} bytes, got {size}; it was cut, use a complete copy of the run."
            )
        return cls(path, descriptor, num_bytes, is_growing=False)

    def append(self, data: bytes) -> None:
        """Put `data` behind what is there; it is durable after `sync`."""
        if not self.is_growing:
            raise ValueError(f"{self.path}: is sealed; nothing can be appended.")
        self._pending.append(data)
        self.num_bytes += len(data)
        if self.num_bytes - self._num_written > MAX_PENDING_BYTES:
            self._write()

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._write()
        _sync_data(self._descriptor)

    def seal(self) -> None:
        """Make the file durable and refuse to append from now on."""
        self._write()
        os.fsync(self._descriptor)
        self.is_growing = False

    def read(self, start: int, length: int) -> bytearray:
        """Return `length` bytes from `start` on, all of them inside `num_bytes`; zeros where the file was cut since."""
        self._write_up_to(start + length)
        data = bytearray(length)
        os.preadv(self._descriptor, [data], start)
        return data

    def read_ahead(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytearray | None]:
        """Return what `read` would for each place if the system has it in memory; else ask for it, and give None."""
        self._write_up_to(max(map(add, starts, lengths), default=0))
        return [self._read_at_once(start, length) for start, length in zip(starts, lengths, strict=True)]

    def _read_at_once(self, start: int, length: int) -> bytearray | None:
        data = bytearray(length)
        try:
            if os.preadv(self._descriptor, [data], start, _NO_WAIT) == length:
                return data
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
        if _WILL_NEED is not None:
            os.posix_fadvise(self._descriptor, start, length, _WILL_NEED)
        return None

    def view(self) -> memoryview:
        """Return all bytes, read-only: a memory map if the file is sealed, else a copy."""
        if self.is_growing:
            return memoryview(self.read(0, self.num_bytes))
        if self._view is None:
            self._view = memoryview(mmap.mmap(self._descriptor, self.num_bytes, access=mmap.ACCESS_READ))
        return self._view

    def close(self) -> None:
        """Write what is pending and close the file."""
        self._write()
        os.close(self._descriptor)

    def _write_up_to(self, end: int) -> None:
        if end > self._num_written:
            self._write()

    def _write(self) -> None:
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            num_written = os.pwrite(self._descriptor, data, self._num_written)
            self._num_written += num_written
            data = data[num_written:]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
