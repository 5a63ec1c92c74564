"""A file that only grows: nothing in it is ever rewritten or truncated."""

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from exgrpo_core.experience_management.corruption import BufferCorruptionError

_MAX_PARTS = 1024
"""IOV_MAX of Linux."""

# Without these (other systems than Linux) a file is synced as a whole and read without asking ahead.
_sync_data = getattr(os, "fdatasync", os.fsync)
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", None)


class AppendFile:
    """The first `num_bytes` of a file; what may lie behind them belongs to an attempt that was given up.

    One process appends, one thread uses it.
    """

    def __init__(self, path: Path, descriptor: int, num_bytes: int, is_growing: bool) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self.is_growing = is_growing
        self._descriptor = descriptor
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

    def append(self, parts: Sequence[bytes | memoryview]) -> None:
        """Put `parts` behind what is there, end to end; they are durable after `sync`."""
        if not self.is_growing:
            raise ValueError(f"{self.path}: is sealed; nothing can be appended.")
        for start in range(0, len(parts), _MAX_PARTS):
            self._write(parts[start : start + _MAX_PARTS])

    def sync(self) -> None:
        """Make everything appended so far durable."""
        _sync_data(self._descriptor)

    def seal(self) -> None:
        """Make the file durable and refuse to append from now on."""
        os.fsync(self._descriptor)
        self.is_growing = False

    def read(self, start: int, length: int) -> bytearray:
        """Return `length` bytes from `start` on, all of them inside `num_bytes`; zeros where the file was cut since."""
        data = bytearray(length)
        self.fill(start, memoryview(data))
        return data

    def read_ahead(self, starts: Sequence[int], parts: Sequence[memoryview]) -> list[int]:
        """Fill parts with the bytes from their starts on where the system has them in memory; ask it for the others.

        Returns the positions of the others, for `fill`.
        """
        return [i for i, place in enumerate(zip(starts, parts, strict=True)) if not self._fill_at_once(*place)]

    def fill(self, start: int, part: memoryview) -> None:
        """Fill a part with the bytes from `start` on, waiting for the disk; with zeros where the file was cut since."""
        num_read = os.preadv(self._descriptor, [part], start)
        part[num_read:] = bytes(len(part) - num_read)

    def _fill_at_once(self, start: int, part: memoryview) -> bool:
        try:
            if os.preadv(self._descriptor, [part], start, _NO_WAIT) == len(part):
                return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
        if _WILL_NEED is not None:
            os.posix_fadvise(self._descriptor, start, len(part), _WILL_NEED)
        return False

    def view(self) -> memoryview:
        """Return all bytes, read-only: a memory map if the file is sealed, else a copy."""
        if self.is_growing:
            return memoryview(self.read(0, self.num_bytes))
        if self._view is None:
            self._view = memoryview(mmap.mmap(self._descriptor, self.num_bytes, access=mmap.ACCESS_READ))
        return self._view

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        end = self.num_bytes + sum(memoryview(part).nbytes for part in parts)
        num_written = self.num_bytes + os.pwritev(self._descriptor, parts, self.num_bytes)
        if num_written < end:
            rest = b"".join(parts)[num_written - end :]
            while rest:
                rest = rest[os.pwrite(self._descriptor, rest, end - len(rest)) :]
        self.num_bytes = end


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
