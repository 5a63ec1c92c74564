"""Files that are either complete or absent, and that survive a crash of the machine once written."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


def sync(path: Path) -> None:
    """Write a file's content, or the names in a folder, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`; if it is new only its user may read it, whatever the umask is."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def whole_file(path: Path, *, is_durable: bool = True, syncs_folder: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that is renamed to `path` when the block ends; if the block raises, `path` is unchanged.

    `is_durable` syncs the content before the rename and `syncs_folder` the name after it. Each writer has a temporary
    name that ends in `.tmp`: of two writers at once, the later one's whole file remains. Space from `reserve` is
    overwritten, which needs no new space.
    """
    is_reserved = reserved_name(path).exists()
    unfinished = reserved_name(path) if is_reserved else path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(unfinished, "r+b" if is_reserved else "xb", opener=private) as file:
            yield file
            file.truncate()
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:
        if not is_reserved:
            unfinished.unlink(missing_ok=True)
        _name_file(error, path)
        raise
    if is_durable and syncs_folder:
        sync(path.parent)


def write_whole(
    path: Path, content: str | bytes | memoryview, *, is_durable: bool = True, syncs_folder: bool = True
) -> None:
    """Write a file whole: readers see all of the old content or all of the new, never a part.

    Raises:
        OSError: It could not be written; `path` is unchanged.
    """
    with whole_file(path, is_durable=is_durable, syncs_folder=syncs_folder) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def reserve(path: Path, num_bytes: int) -> None:
    """Reserve the space that the next `write_whole` needs, so that it succeeds even if the disk is full by then."""
    with open(reserved_name(path), "wb", opener=private) as file:
        file.write(b" " * num_bytes)


def reserved_name(path: Path) -> Path:
    """Return the name under which space is reserved for a file."""
    return path.with_name(f"{path.name}.reserved.tmp")


def append_line(path: Path, line: bytes) -> None:
    """Append one line and return once it is on disk; processes that append at the same time wait for each other."""
    with appending(path) as append:
        append(line)


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that appends a line, which is on disk when it returns; nobody else appends until it ends.

    If a full disk or a kill left the last line incomplete, it is ended first, so that it does not damage the new one.
    """
    with open(path, "ab+", opener=private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def append(line: bytes) -> None:
            size = os.fstat(file.fileno()).st_size
            is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            try:
                file.write((b"\n" if is_torn else b"") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                _name_file(error, path)
                raise

        yield append


def link_or_copy(source: str, target: str) -> str:
    """Give a file a second name, or copy it where links cannot be made; return `target`, as `shutil.copytree` wants."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_disk_full(error: BaseException) -> bool:
    """Whether a full disk, quota or file is the cause; libraries that are not Python's say so only in their message."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(os.strerror(number) in str(error) for number in _FULL)


def _name_file(error: BaseException, path: Path) -> None:
    """Name the file in the error of a write, which has no name, if a disk or quota is full."""
    if isinstance(error, OSError) and error.filename is None and is_disk_full(error):
        error.filename = os.fspath(path)


def what_to_free(error: BaseException) -> str:
    """Return what the user can do if a disk, a quota or a file is full."""
    if os.strerror(errno.EFBIG) in str(error):
        return "raise the limit of file sizes (ulimit -f)"
    return "free some space or inodes"


_WRONG_PATHS = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


def explain(error: BaseException) -> str:
    """Return why something cannot be written or read, and what to do."""
    return "; ".join(filter(None, (cause_of(error), remedy_of(error))))


def cause_of(error: BaseException) -> str:
    """Return why something cannot be written or read."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip().partition("\n")[0]
    return why.rstrip(".")


def remedy_of(error: BaseException) -> str:
    """Return what to do so that something can be written or read, "" where that is not known."""
    if is_disk_full(error):
        return f"{what_to_free(error)} there, or choose another folder"
    if isinstance(error, OSError) and error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return "let this user read and write it, as by chown, or choose another folder"
    if isinstance(error, OSError) and error.errno in _WRONG_PATHS:
        return "correct the path, or name another"
    return ""
