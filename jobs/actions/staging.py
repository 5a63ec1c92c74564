"""Folders in which runs are made before they get their name; what a kill leaves of them is removed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.runs.file_lock import FileLock

_PREFIXES = (".importing-", ".adopting-", ".restoring-")
_LOCK_FILE = "staging.lock"


@contextmanager
def staging_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Yield a new hidden folder in `parent` for importing, adopting or restoring; it is removed in the end.

    Folders of earlier programs that were killed are removed first.
    """
    remove_left_over(parent)
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


def remove_left_over(parent: Path) -> None:
    """Remove staging folders whose program is gone: the kernel frees the lock of a killed one."""
    for folder in (path for prefix in _PREFIXES for path in parent.glob(f"{prefix}*")):
        lock = FileLock(folder / _LOCK_FILE)
        if folder.is_symlink() or not folder.is_dir() or not lock.acquire():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
