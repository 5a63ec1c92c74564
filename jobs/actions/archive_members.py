"""Reading tar files that anybody may have made: every header is checked as it is read, before anything is written."""

import io
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from exgrpo_core.bounded_json import UnreadableFileError, open_plain
from exgrpo_core.errors import InputError

MAX_MEMBERS = 250_000
MAX_HEADER_BYTES = 1 << 16
"""More than the longest name takes; a larger extended header costs `tarfile` two hundred times its size in memory."""
BASE_SECONDS = 600.0
"""How long any archive may take, from its opening until it is unpacked."""
BYTES_A_SECOND = 2 << 20
"""A larger archive may take as long as this rate needs, which disks exceed and a bomb does not."""
_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE)


class ArchiveError(InputError, ValueError):
    """A run that cannot be imported or exported; one sentence names what is wrong."""


class _BadMemberError(Exception):
    """A header that is refused; says what is wrong with it."""


class _CheckedMember(tarfile.TarInfo):
    """A header that is refused before `tarfile` acts on it.

    A negative size makes some versions of `tarfile` read the same header for ever (CVE-2025-8194), and headers for all
    later members are copied for each of them.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTENDED and member.size > MAX_HEADER_BYTES:
            raise _BadMemberError(f"has an extended header of {member.size:,} bytes")
        if member.type not in (*_EXTENDED, *_PLAIN):
            raise _BadMemberError(f"member {member.name[:80]!r} is not a plain file")
        _check_size(member)
        return member


class _TimedFile(io.RawIOBase):
    """A file that is read for a limited time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._seconds = BASE_SECONDS + os.fstat(file.fileno()).st_size / BYTES_A_SECOND
        self._began_at = time.monotonic()

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        if time.monotonic() - self._began_at > self._seconds:
            raise _BadMemberError(f"takes longer than {self._seconds:.0f} s to read")
        return self._file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@contextmanager
def open_archive(source: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar file, plain or by gzip; read for a limited time; whatever is wrong with it becomes one sentence.

    Raises:
        ArchiveError: It cannot be read, or is no whole tar file.
    """
    try:
        with open_plain(source) as file:
            is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            mode = "r:gz" if is_gzip else "r:"
            with tarfile.open(fileobj=_TimedFile(file), mode=mode, tarinfo=_CheckedMember) as archive:  # type: ignore[call-overload]
                yield archive
    except _BadMemberError as error:
        raise ArchiveError(f"{source}: {error}; nothing is written.") from None
    except UnreadableFileError as error:
        raise ArchiveError(str(error)) from None
    except OSError as error:
        raise ArchiveError(f"{source}: cannot be read ({error.strerror or error}).") from None
    except (tarfile.TarError, EOFError, zlib.error, RecursionError, OverflowError, UnicodeError):
        # tarfile's message has a line for every format that it tried
        raise ArchiveError(f"{source}: expected a folder or a whole .tar or .tar.gz file.") from None


def checked_members(archive: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the members one after the other: plain files, folders and links between them, below `folder`.

    There are at most `MAX_MEMBERS`, which fit on the disk of `folder`. Each has another path, so none replaces one that
    was checked, and a link leads to an earlier one.
    """
    free, num_bytes, files = shutil.disk_usage(folder).free, 0, set[PurePosixPath]()
    for number, member in enumerate(archive, start=1):
        _check_size(member)  # an extended header may have another size than the block
        num_bytes += member.size
        if number > MAX_MEMBERS:
            raise _BadMemberError(f"has more than {MAX_MEMBERS:,} members")
        if num_bytes > free:
            raise _BadMemberError(f"needs {num_bytes:,} bytes or more, and {free:,} are free")
        path = PurePosixPath(member.name)
        if _leads_out(path) or not path.parts:
            raise _BadMemberError(f"member {member.name[:80]!r} would be written outside the runs folder")
        is_inner_link = member.islnk() and PurePosixPath(member.linkname) in files
        if member.issparse() or not (member.isreg() or member.isdir() or is_inner_link):
            raise _BadMemberError(f"member {member.name[:80]!r} is not a plain file")
        if path in files:
            raise _BadMemberError(f"has member {member.name[:80]!r} twice")
        if not member.isdir():
            files.add(path)
        yield member
    _read_to_end(archive)


def _read_to_end(archive: tarfile.TarFile) -> None:
    """Read what follows the members, at whose end gzip has a checksum of everything; a plain tar file has none."""
    while archive.fileobj and archive.fileobj.read(_CHUNK_BYTES):
        pass


def _check_size(member: tarfile.TarInfo) -> None:
    if not 0 <= member.size < 1 << 62:
        raise _BadMemberError(f"member {member.name[:80]!r} has the size {member.size}")


def _leads_out(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts or "\0" in str(path)
