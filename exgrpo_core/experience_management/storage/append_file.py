"""A file that only grows: nothing in it is ever rewritten or truncated."""

import errno
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from pathlib import Path


class BufferCorruptionError(RuntimeError):
    """A segment or snapshot is missing, cut or altered; the message names the file and what to do."""


ODD_CONTENT = (IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading a file raises whose checksum is right, though another program wrote it."""


# Systems other than Linux lack these: a file is then synced as a whole and read without read-ahead.
_sync_data = getattr(os, "fdatasync", os.fsync)
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", None)


class AppendFile:
    """The first `num_bytes` of a file; bytes behind them, if any, are of an abandoned attempt.

    One process appends, one thread uses it. `writer` writes and syncs in order, in the background. Reads wait for it
    and raise its errors.
    """

    def __init__(self, path: Path, descriptor: int, num_bytes: int, writer: Executor | None = None) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self._descriptor = descriptor
        # A buffer that nobody closes gives its files back too.
        self._close = weakref.finalize(self, os.close, descriptor)
        self._writer = writer
        self._unfinished: deque[Future[None]] = deque()
        self._view: memoryview | None = None

    @property
    def unfinished(self) -> list[Future[None]]:
        """Appends and syncs that may not be done."""
        return list(self._unfinished)

    @property
    def is_growing(self) -> bool:
        """Whether it may be appended to."""
        return self._writer is not None

    @classmethod
    def create(cls, path: Path, writer: Executor) -> "AppendFile":
        """Create the file for appending; it must not exist yet."""
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), 0, writer)

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
        return cls(path, descriptor, num_bytes)

    def append(self, content: bytes) -> None:
        """Append `content`.

        Raises:
            OSError: An earlier append could not be written.
        """
        self.settle()
        self._submit(self._write, content, self.num_bytes)
        self.num_bytes += len(content)

    def sync(self) -> None:
        """Begin to make everything appended so far durable; `settle` waits for it."""
        self._submit(self._sync, self.unfinished)

    def settle(self) -> None:
        """Wait until all appends and syncs are done.

        Raises:
            OSError: One failed; every later call raises it too.
        """
        while self._unfinished:
            self._unfinished[0].result()
            self._unfinished.popleft()

    def seal(self) -> None:
        """Finish writing and refuse appends from now on."""
        self.settle()
        self._writer = None

    def read(self, start: int, length: int) -> bytearray:
        """Return `length` bytes from `start` on, within `num_bytes`; zeros where the file was cut later."""
        data = bytearray(length)
        self.fill(start, memoryview(data))
        return data

    def read_ahead(self, starts: Sequence[int], parts: Sequence[memoryview]) -> list[int]:
        """Fill parts with the bytes from their starts on, if the system has them in memory; request the others.

        Returns the indexes of the others, for `fill`.
        """
        self.settle()
        read, descriptor = os.preadv, self._descriptor
        others = []
        for i, (start, part) in enumerate(zip(starts, parts, strict=True)):
            try:
                if read(descriptor, (part,), start, _NO_WAIT) == len(part):
                    continue
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                    raise
            if _WILL_NEED is not None:
                os.posix_fadvise(descriptor, start, len(part), _WILL_NEED)
            others.append(i)
        return others

    def fill(self, start: int, part: memoryview) -> None:
        """Fill a part with the bytes from `start` on, waiting for the disk; with zeros where the file was cut later."""
        self.settle()
        num_read = os.preadv(self._descriptor, [part], start)
        part[num_read:] = bytes(len(part) - num_read)

    def view(self) -> memoryview:
        """Return all bytes, read-only: a memory map if the file is sealed, else a copy."""
        if self.is_growing:
            return memoryview(self.read(0, self.num_bytes))
        if self._view is None:
            self._view = memoryview(mmap.mmap(self._descriptor, self.num_bytes, access=mmap.ACCESS_READ))
        return self._view

    def close(self) -> None:
        """Close the file once all writes are done."""
        wait(self._unfinished)
        try:
            self.settle()
        finally:
            self._close()

    def _submit(self, work: Callable[..., None], *arguments: object) -> Future[None]:
        if self._writer is None:
            raise ValueError(f"{self.path}: is sealed; nothing can be appended.")
        self._unfinished.append(self._writer.submit(work, *arguments))
        return self._unfinished[-1]

    def _write(self, content: bytes, start: int) -> None:
        rest = memoryview(content)
        while rest:
            num_written = os.pwrite(self._descriptor, rest, start)
            rest, start = rest[num_written:], start + num_written

    def _sync(self, after: Sequence[Future[None]]) -> None:
        for earlier in after:
            earlier.result()
        _sync_data(self._descriptor)
