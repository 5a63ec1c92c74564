"""Files that are whole under their name or not there, and that survive a crash of the machine once written."""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def sync(path: Path) -> None:
    """Put a file's content, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_file(path: Path, *, is_durable: bool = True, syncs_folder: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name when the block ends; if the block raises, `path` is as it was.

    With `is_durable` the content is on disk before it has the name; with `syncs_folder` so is the name after it. Until
    then it has a name of its own that ends in `.tmp`, so that of two writers at once the later one counts, whole. Space
    that was reserved is written over, which takes no new one.
    """
    is_reserved = reserved_name(path).exists()
    unfinished = reserved_name(path) if is_reserved else path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with unfinished.open("r+b" if is_reserved else "xb") as file:
            yield file
            file.truncate()
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        if not is_reserved:
            unfinished.unlink(missing_ok=True)
        raise
    if is_durable and syncs_folder:
        sync(path.parent)


def write_whole(path: Path, content: str | bytes, *, is_durable: bool = True, syncs_folder: bool = True) -> None:
    """Write a file whole: readers see what it held before or all of the new content, never a part.

    Raises:
        OSError: It could not be written; `path` is as it was.
    """
    with whole_file(path, is_durable=is_durable, syncs_folder=syncs_folder) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def reserve(path: Path, num_bytes: int) -> None:
    """Take the space that the one next `write_whole` will need, so that it succeeds on a disk that is full by then."""
    reserved_name(path).write_bytes(b" " * num_bytes)


def reserved_name(path: Path) -> Path:
    """Return the name under which space is reserved for a file."""
    return path.with_name(f"{path.name}.reserved.tmp")


def append_line(path: Path, line: bytes) -> None:
    """Append one line and return once it is on disk; processes that append at once wait for each other.

    A line that a full disk or a kill cut short is ended first, so that it spoils no other.
    """
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if is_torn else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def is_disk_full(error: BaseException) -> bool:
    """Tell whether a full disk or quota is the reason; libraries that are not Python's say so in words only."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))
