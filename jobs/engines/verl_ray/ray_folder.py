"""The folder of a local Ray's sockets and logs: removed at its end or, if its worker was killed, by the next run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jobs.runs.file_lock import FileLock, is_locked

PREFIX = "exgrpo-ray-"
LOCK_FILE = "owner.lock"


@contextmanager
def ray_folder() -> Iterator[Path]:
    """Yield a new folder and remove it afterwards; remove old folders whose owners are dead first."""
    parent = Path(tempfile.gettempdir())
    _remove_stale(parent)
    hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    lock = FileLock(hidden / LOCK_FILE)
    lock.acquire()
    folder = hidden.rename(parent / hidden.name[1:])  # so the visible folder always has its lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's
            if (folder / LOCK_FILE).exists() and not is_locked(folder / LOCK_FILE):
                shutil.rmtree(folder)
