"""A file that only grows, read through a memory map: nothing in it is ever rewritten or truncated."""

import mmap
import os
from pathlib import Path

from exgrpo_core.experience_management.corruption import BufferCorruptionError

MAX_PENDING_BYTES = 8 << 20
"""Appended bytes that may wait in memory for the next write."""

_sync_data = getattr(os, "fdatasync", os.fsync)


class AppendFile:
    """The first `num_bytes` of a file; what may lie behind them belongs to an attempt that was given up.

    One process appends, one thread uses it. Appended bytes are gathered and written before they are read or synced.
    A map of the file is made when it is read, and made anew when what is read lies behind its end.
    """

    def __init__(self, path: Path, descriptor: int | None, num_bytes: int) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self._descriptor = descriptor
        self._pending: list[bytes] = []
        self._num_written = num_bytes
        self._map: mmap.mmap | None = None
        self._is_dirty = False

    @classmethod
    def create(cls, path: Path) -> "AppendFile":
        """Create the file for appending; it must not be there yet."""
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), 0)

    @classmethod
    def open_sealed(cls, path: Path, num_bytes: int) -> "AppendFile":
        """Open the first `num_bytes` of a file for reading.

        Raises:
            BufferCorruptionError: The file is missing or shorter.
        """
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BufferCorruptionError(
                f"{path}: cannot be read ({error.strerror}), but the buffer's snapshot needs it; use a complete copy "
                "of the run."
            ) from error
        if size < num_bytes:
            raise BufferCorruptionError(
                f"{path}: expected at least {num_bytes} bytes, got {size}; it was cut, use a complete copy of the run."
            )
        return cls(path, None, num_bytes)

    def append(self, data: bytes) -> None:
        """Put `data` behind what is there; it is durable after `sync`."""
        if self._descriptor is None:
            raise ValueError(f"{self.path}: is sealed; nothing can be appended.")
        self._pending.append(data)
        self.num_bytes += len(data)
        if self.num_bytes - self._num_written > MAX_PENDING_BYTES:
            self._write_pending()

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._write_pending()
        if self._is_dirty and self._descriptor is not None:
            _sync_data(self._descriptor)
            self._is_dirty = False

    def seal(self) -> None:
        """Make the file durable and close it for writing."""
        self._write_pending()
        if self._descriptor is not None:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def mapped(self, end: int) -> mmap.mmap:
        """Return a read-only map that reaches at least to byte `end`, which is above 0 and at most `num_bytes`."""
        if self._map is None or len(self._map) < end:
            self._write_pending()
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), self.num_bytes, access=mmap.ACCESS_READ)
        return self._map

    def close(self) -> None:
        """Write what is pending, close the file and forget its map; arrays that show the map stay valid."""
        self._write_pending()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._map = None

    def _write_pending(self) -> None:
        if not self._pending or self._descriptor is None:
            return
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        while data:
            num_written = os.pwrite(self._descriptor, data, self._num_written)
            self._num_written += num_written
            data = data[num_written:]
        self._is_dirty = True


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
