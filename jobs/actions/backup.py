"""Back up a whole runs root as one file while runs continue, and restore it."""

import contextlib
import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from db import SQLITE_FILE
from db.connections.session import DatabaseError, copy_sqlite, sqlite_path
from exgrpo_core.durable_files import explain, sync
from jobs.actions.archive import ArchiveError, staging_folder, unpack
from jobs.runs.directory import SUPERVISOR_FILE, WORKBENCH_FOLDER, list_run_directories, unreadable_below
from jobs.runs.state import CONTACT_FILE

_OF_PROCESSES = frozenset({"lock", SUPERVISOR_FILE, "workbench.json"})
"""Files that are true only while a process lives. Heartbeats stay: their process does not work on the copy."""
_SEAL = f"{WORKBENCH_FOLDER}/backup.json"
"""The last member: the number of those before it. Without it, a tar file that was cut would look complete."""
_LEFT_OUT_ENDINGS = (".tmp", ".lock", "supervisor.log", ".db", ".db-wal", ".db-shm")


@dataclass(frozen=True, slots=True)
class Backup:
    """Size of a backup; `has_database` is whether SQLite's file is in it: not if it is missing or damaged."""

    num_runs: int
    num_bytes: int
    has_database: bool
    left_out: Mapping[Path, str] = field(default_factory=dict)
    """Why files and folders that cannot be read are not in it."""


def back_up(runs_root: Path, database_url: str | None, target: Path) -> Backup:
    """Write the runs root to the tar file `target`; runs may continue while it is written.

    The order makes the copy consistent. The database is first, so that it knows nothing that the files lack; a
    supervisor ingests the rest. A run's checkpoints come before the files that they refer to, which only grow.

    Files and folders that this user may not read are left out.

    Raises:
        ArchiveError: There is no runs root, `target` exists or lies inside, or a file cannot be read or written.
    """
    if not runs_root.is_dir():
        raise ArchiveError(f"{runs_root}: no such runs root; name it with --runs-root.")
    if target.exists() or not target.parent.is_dir():
        raise ArchiveError(f"{target}: expected a new file in an existing folder.")
    if target.resolve().is_relative_to(runs_root.resolve()):
        raise ArchiveError(f"{target}: is inside the runs root itself; choose another target.")
    unfinished = target.with_name(target.name + ".tmp")
    try:
        # `_Writer` finds hard links; dereferencing keeps `tarfile` from finding them by inode alone.
        with tarfile.open(unfinished, "w", dereference=True) as archive:
            writer = _Writer(archive)
            has_database = _add_database(writer, sqlite_path(database_url, runs_root), target.parent)
            left_out = unreadable_below(runs_root)
            for path in _paths_in_order(runs_root):
                try:
                    writer.add(path, path.relative_to(runs_root))
                except PermissionError as error:
                    left_out[path] = error.strerror or str(error)
            writer.seal()
        sync(unfinished)
        unfinished.rename(target)
    except OSError as error:
        culprit = target if error.filename in (None, str(unfinished)) else error.filename
        raise ArchiveError(f"{culprit}: cannot be read or written ({explain(error, target.parent)}).") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return Backup(len(list_run_directories(runs_root)), target.stat().st_size, has_database, left_out)


def restore(source: Path, runs_root: Path) -> Backup:
    """Unpack a backup into a new or empty runs root, which appears once it is complete.

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
        _unpack(source, staging)
        if runs_root.exists():
            runs_root.rmdir()
        staging.rename(runs_root)
    return Backup(len(list_run_directories(runs_root)), source.stat().st_size, (runs_root / SQLITE_FILE).is_file())


class _Writer:
    """Adds files to an archive; a file with several names (hard links) is stored once."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._names: dict[tuple[int, int, int, int], str] = {}
        """By device, inode, time and size: a removed file's inode may become another file's."""

    def add(self, path: Path, name: Path | str) -> None:
        """Add a folder, or a file at its current length, since it may grow; skip a path that no longer exists."""
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                self._archive.addfile(_anonymous(self._archive.gettarinfo(path, arcname=str(name))))
                return
            with path.open("rb") as file:
                member = _anonymous(self._archive.gettarinfo(arcname=str(name), fileobj=file))
                state = os.fstat(file.fileno())
                first = self._names.setdefault(
                    (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size), member.name
                )
                if state.st_nlink > 1 and first != member.name:
                    member.type, member.linkname, member.size = tarfile.LNKTYPE, first, 0
                self._archive.addfile(member, file if member.isreg() else None)

    def seal(self) -> None:
        content = _seal(len(self._archive.getmembers()))
        member = tarfile.TarInfo(_SEAL)
        member.size = len(content)
        self._archive.addfile(member, io.BytesIO(content))


def _seal(num_members: int) -> bytes:
    return json.dumps({"num_members": num_members}).encode()


def _add_database(writer: _Writer, path: Path | None, folder_of_copy: Path) -> bool:
    if path is None or not path.is_file():
        return False
    with tempfile.TemporaryDirectory(dir=folder_of_copy, prefix=".backup-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            copy_sqlite(path, copy)
        except DatabaseError:  # an index of the files, which the backup has
            return False
        writer.add(copy, SQLITE_FILE)
    return True


def _paths_in_order(runs_root: Path) -> Iterator[Path]:
    runs = [run.path for run in list_run_directories(runs_root)]
    for run in runs:
        yield from _checkpoints_in_order(run / "checkpoints")
    for run in runs:
        yield from (path for path in _paths_below(run) if not _is_of_checkpoints(path, run))
    yield from _paths_below(runs_root / WORKBENCH_FOLDER)


def _checkpoints_in_order(folder: Path) -> Iterator[Path]:
    """Yield checkpoints, newest first; if all were removed while being read, those written since.

    A trainer removes old checkpoints, so every listed one may be gone before it is read.
    """
    yield folder
    listed: set[Path] = set()
    is_one_whole = False
    while not is_one_whole and (new := [path for path in _folders_in(folder) if path not in listed]):
        for checkpoint in new:
            paths = list(_paths_below(checkpoint))
            yield from paths
            is_one_whole = is_one_whole or list(_paths_below(checkpoint)) == paths
        listed.update(new)


def _folders_in(folder: Path) -> list[Path]:
    folders = (path for path in folder.glob("[!.]*") if os.path.isdir(path) and not path.is_symlink())
    return sorted((path for path in folders if path.suffix != ".tmp"), reverse=True)


def _is_of_checkpoints(path: Path, run: Path) -> bool:
    parts = path.relative_to(run).parts
    return parts[:1] == ("checkpoints",) and (len(parts) != 2 or os.path.isdir(path))


def _paths_below(folder: Path) -> Iterator[Path]:
    """Return a folder with the folders and plain files below it; links are left out, since they may lead anywhere.

    A folder that is removed while it is read, as old checkpoints are, ends early.
    """
    for item, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not name.endswith((".tmp", ".db")))
        yield Path(item)
        for name in sorted(names):
            path = Path(item) / name
            is_left_out = name in _OF_PROCESSES or name.endswith(_LEFT_OUT_ENDINGS) or name.startswith(".")
            if not is_left_out and _may_be_plain(path):
                yield path


def _may_be_plain(path: Path) -> bool:
    """Whether a path is that of a plain file, or of what this user may not look at."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError as error:
        return isinstance(error, PermissionError)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(source: Path, folder: Path) -> None:
    leaves_out = {CONTACT_FILE}  # a restored job causes no connection to a cluster
    num_members = unpack(source, folder, leaves_out, "a whole archive of `exgrpo backup`")
    seal = folder / _SEAL
    if not seal.is_file() or seal.read_bytes() != _seal(num_members - 1):
        raise ArchiveError(
            f"{source}: expected a complete file of `exgrpo backup`; use another copy; nothing restored."
        )
    seal.unlink()
