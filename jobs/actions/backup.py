"""Back up a whole runs root as one tar file while runs continue, and restore it."""

import contextlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from exgrpo.jobs.actions.archive import ArchiveError, staging_folder, unpack
from exgrpo.jobs.runs.directory import SUPERVISOR_FILE, WORKBENCH_FOLDER, list_run_directories, unreadable_below
from exgrpo.jobs.runs.lookup import check_root
from exgrpo.jobs.runs.state import CONTACT_FILE
from exgrpo_core.durable_files import explain, sync

_OF_PROCESSES = frozenset({"lock", SUPERVISOR_FILE, "workbench.json"})
"""Files that are true only while a process lives. Heartbeats stay: their process does not work on the copy."""
_LEFT_OUT_ENDINGS = (".tmp", ".lock", "supervisor.log", ".db", ".db-wal", ".db-shm")
"""The database is left out: it is an index of the files."""
_END = 2 * 512
"""Zeros at the end of every tar file; one that was cut, or has a damaged header, has other bytes there."""


def back_up(runs_root: Path, target: Path) -> dict[Path, str]:
    """Write the runs root to the tar file `target`; runs may continue while it is written.

    A run's checkpoints come before the files that they refer to, which only grow. Links are left out, since they may
    lead anywhere.

    Returns:
        Why files and folders that this user may not read are not in it.

    Raises:
        CommandError: There is no runs root.
        ArchiveError: `target` exists or lies inside, or a file cannot be read or written.
    """
    check_root(runs_root)
    if target.exists() or not target.parent.is_dir():
        raise ArchiveError(f"{target}: expected a new file in an existing folder.")
    if target.resolve().is_relative_to(runs_root.resolve()):
        raise ArchiveError(f"{target}: is inside the runs root itself; choose another target.")
    unfinished = target.with_name(target.name + ".tmp")
    left_out = unreadable_below(runs_root)
    try:
        # Links of models, which have gigabytes, are kept. tarfile knows them by device and inode only, but an inode may
        # become another file's once a live run pruned the first one; time and size tell the two apart.
        with tarfile.open(unfinished, "w", dereference=True) as archive:
            stored: dict[tuple[int, ...], str] = {}
            for path in _paths_in_order(runs_root):
                try:
                    _add(archive, stored, path, str(path.relative_to(runs_root)))
                except PermissionError as error:
                    left_out[path] = error.strerror or str(error)
        sync(unfinished)
        unfinished.rename(target)
        sync(target.parent)
    except OSError as error:
        culprit = target if error.filename in (None, str(unfinished)) else error.filename
        raise ArchiveError(f"{culprit}: cannot be read or written ({explain(error)}).") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return left_out


def restore(source: Path, runs_root: Path) -> int:
    """Unpack a backup into a new or empty runs root, which appears once it is complete; return how many runs it has.

    Raises:
        ArchiveError: The file is missing or no complete backup, holds anything but plain files, or the runs root
            holds something.
    """
    if not source.is_file():
        raise ArchiveError(f"{source}: no such file; name one that `exgrpo backup` wrote.")
    if runs_root.exists() and (not runs_root.is_dir() or any(runs_root.iterdir())):
        raise ArchiveError(f"{runs_root}: is not empty; restore into a new folder and name it with --runs-root.")
    runs_root.parent.mkdir(parents=True, exist_ok=True)
    with staging_folder(runs_root.parent, "restoring") as staging:
        # Without its contact a restored job causes no connection to a cluster.
        end = unpack(source, staging, {CONTACT_FILE}, "a whole archive of `exgrpo backup`")
        with source.open("rb") as file:
            file.seek(end)
            rest = file.read(2 * tarfile.RECORDSIZE)
        if len(rest) < _END or rest.strip(b"\0"):
            raise ArchiveError(
                f"{source}: expected a complete file of `exgrpo backup`; use another copy; nothing restored."
            )
        if runs_root.exists():
            runs_root.rmdir()
        staging.rename(runs_root)
    return len(list_run_directories(runs_root))


def _add(archive: tarfile.TarFile, stored: dict[tuple[int, ...], str], path: Path, name: str) -> None:
    """Add a folder, or a plain file at its current length, since it may grow; skip a path that no longer exists."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            return
        with contextlib.nullcontext() if path.is_dir() else path.open("rb") as file:
            member = archive.gettarinfo(path, name, file)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            if file and (state := os.fstat(file.fileno())).st_nlink > 1:
                first = stored.setdefault((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size), name)
                if first != name:
                    member.type, member.linkname, member.size = tarfile.LNKTYPE, first, 0
            archive.addfile(member, file if member.isreg() else None)


def _paths_in_order(runs_root: Path) -> Iterator[Path]:
    runs = [run.path for run in list_run_directories(runs_root)]
    for run in runs:
        yield from _paths_below(run / "checkpoints")
    for run in runs:
        yield from _paths_below(run, {"checkpoints"})
    yield from _paths_below(runs_root / WORKBENCH_FOLDER)


def _paths_below(folder: Path, without: frozenset[str] | set[str] = frozenset()) -> Iterator[Path]:
    """Yield a folder and what is below it; one that is removed while it is read, as old checkpoints are, ends early."""
    for item, folders, names in os.walk(folder):
        is_top = Path(item) == folder
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not name.endswith((".tmp", ".db")) and not (is_top and name in without)
        )
        yield Path(item)
        for name in sorted(names):
            if name not in _OF_PROCESSES and not name.endswith(_LEFT_OUT_ENDINGS) and not name.startswith("."):
                yield Path(item) / name
