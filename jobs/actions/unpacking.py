"""Unpacking tar files in a staging folder: a run or backup gets its place once it is whole and checked."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from exgrpo_core.bounded_json import UnreadableFileError, open_plain
from exgrpo_core.durable_files import is_disk_full
from exgrpo_core.errors import InputError
from jobs.runs.file_lock import FileLock

MAX_MEMBERS = 250_000
_CHUNK_BYTES = 1 << 20
_PREFIXES = (".importing-", ".adopting-", ".restoring-")
_LOCK_FILE = "staging.lock"


class ArchiveError(InputError, ValueError):
    """A run that cannot be imported or exported; one sentence names what is wrong."""


def unpack(source: Path, folder: Path, leaves_out: Collection[str] = ()) -> int:
    """Unpack a tar file into `folder`, but for files of the names `leaves_out`; return the number of its members.

    Raises:
        ArchiveError: It is no whole tar file, holds anything but files, folders and hard links below `folder`, more
            than `MAX_MEMBERS` of them, or more than fits on the disk.
    """
    free, num_bytes, number = shutil.disk_usage(folder).free, 0, 0
    try:
        with open_plain(source) as file, tarfile.open(fileobj=file, mode="r:*") as archive:
            for number, member in enumerate(archive, start=1):
                num_bytes += member.size
                if number > MAX_MEMBERS or member.size < 0 or num_bytes > free:
                    raise ArchiveError(
                        f"{source}: expected at most {MAX_MEMBERS:,} members and {free:,} bytes, which are free; "
                        "nothing is written."
                    )
                if not (member.isreg() or member.isdir() or member.islnk()):
                    raise ArchiveError(
                        f"{source}: member {member.name[:80]!r} is not a plain file; nothing is written."
                    )
                if PurePosixPath(member.name).name not in leaves_out:
                    archive.extract(member, folder, filter="data")
            # At the end of what follows the members, gzip has a checksum of everything.
            while archive.fileobj and archive.fileobj.read(_CHUNK_BYTES):
                pass
    except (ArchiveError, UnreadableFileError) as error:
        raise ArchiveError(str(error)) from None
    except OSError as error:
        where = f"{folder.parent.parent}: the disk is full" if is_disk_full(error) else f"{source}: cannot be unpacked"
        raise ArchiveError(f"{where} ({error.strerror or error}); nothing is written.") from None
    except (tarfile.TarError, EOFError, zlib.error, KeyError, RecursionError, OverflowError, ValueError) as error:
        # tarfile's message has a line for every format that it tried.
        why = f" ({error})" if isinstance(error, tarfile.FilterError) else ""
        raise ArchiveError(
            f"{source}: expected a folder, or a whole .tar or .tar.gz file of plain files{why}; nothing is written."
        ) from None
    return number


@contextmanager
def staging_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Yield a new hidden folder in `parent` for importing, adopting or restoring; it is removed in the end.

    Folders of earlier programs that were killed are removed first: the kernel frees the lock of a killed one.
    """
    for folder in (path for prefix in _PREFIXES for path in parent.glob(f"{prefix}*")):
        lock = FileLock(folder / _LOCK_FILE)
        if not folder.is_symlink() and folder.is_dir() and lock.acquire():
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
    staging = Path(tempfile.mkdtemp(prefix=f".{purpose}-", dir=parent))
    lock = FileLock(staging / _LOCK_FILE)
    lock.acquire()
    content = staging / "content"
    content.mkdir()
    try:
        yield content
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        lock.release()
