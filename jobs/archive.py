"""Runs in and out of a runs root: as a folder or as a `.tar.gz` file."""

import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from jobs.journal import Journal, JournalKind
from jobs.run_directory import RunDirectory, RunDirectoryError, check_run_id

REQUIRED_FILES = ("spec.json", "run.json")
# A copied heartbeat would name a process that is not this copy's.
_PROCESS_FILES = ("lock", "heartbeat.json")
_LEFT_OUT = shutil.ignore_patterns(*_PROCESS_FILES, "*.tmp")


class ArchiveError(ValueError):
    """A run that cannot be imported or exported; one sentence names what is wrong."""


def export_run(run: RunDirectory, target: Path, *, overwrites: bool = False) -> Path:
    """Copy a run to `target`: a `.tar.gz` file if it is named so, else into the folder `target`, as `target/RUN_ID`.

    Only a file is overwritten, and only where `overwrites` says so; a copied folder may hold what is nowhere else.

    Raises:
        ArchiveError: The target is there already, its folder is not, or it cannot be written.
    """
    is_file = target.name.endswith((".tar.gz", ".tgz"))
    destination = target if is_file else target / run.run_id
    _check_destination(destination, is_file, overwrites)
    try:
        if is_file:
            _write_archive(run, destination)
        else:
            shutil.copytree(run.path, destination, ignore=_LEFT_OUT)
    except OSError as error:
        raise ArchiveError(f"{destination}: cannot be written ({error.strerror}).") from None
    return destination


def import_run(source: Path, runs_root: Path) -> str:
    """Copy a run from a folder or a `.tar.gz` file into `runs_root` and return its id.

    Nothing is written outside a folder of its own inside `runs_root`, which takes its name once it is whole.

    Raises:
        ArchiveError: It is no run, holds anything but plain files, or a run of this id is there already.
    """
    if not source.exists():
        raise ArchiveError(f"{source}: is not there; expected a folder or a .tar.gz file of a run.")
    if source.is_dir():
        _check_run(source, source.resolve().name, source)
    with _staging(runs_root) as staging:
        if source.is_dir():
            run_id = source.resolve().name
            _check_folder(source)
            shutil.copytree(source, staging / run_id, ignore=_LEFT_OUT)
        else:
            run_id = _unpack(source, staging)
            _check_run(staging / run_id, run_id, source)
        (staging / run_id / "control" / "stop").unlink(missing_ok=True)
        destination = runs_root / run_id
        if destination.exists():
            raise ArchiveError(f"{source}: a run {run_id} is in {runs_root} already; remove or rename one of them.")
        (staging / run_id).rename(destination)
    Journal(runs_root).append(JournalKind.IMPORTED, run_id, source=str(source))
    return run_id


def _check_destination(destination: Path, is_file: bool, overwrites: bool) -> None:
    folder = destination.parent
    if not folder.is_dir():
        kinds = "a folder that is there" if is_file else "a .tar.gz file or a folder that is there"
        raise ArchiveError(f"{folder}: there is no such folder; make it first, or name {kinds}.")
    if destination.is_dir():
        raise ArchiveError(f"{destination}: is there already; name another place.")
    if destination.exists() and not overwrites:
        raise ArchiveError(f"{destination}: is there already; name another place, or overwrite it with --force.")


@contextmanager
def _staging(runs_root: Path) -> Iterator[Path]:
    runs_root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".importing-", dir=runs_root))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_archive(run: RunDirectory, destination: Path) -> None:
    unfinished = destination.with_name(destination.name + ".tmp")
    with tarfile.open(unfinished, "w:gz", compresslevel=6) as archive:
        archive.add(run.path, arcname=run.run_id, filter=_anonymous)
    unfinished.rename(destination)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = PurePosixPath(member.name).name
    if name in _PROCESS_FILES or name.endswith(".tmp") or not (member.isfile() or member.isdir() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(source: Path, staging: Path) -> str:
    try:
        with tarfile.open(source, "r:*") as archive:
            members = archive.getmembers()
            run_id = _check_members(members, source)
            archive.extractall(staging, members=members, filter="data")
    except OSError as error:
        raise ArchiveError(f"{source}: cannot be read ({error.strerror or error}).") from None
    except (tarfile.TarError, EOFError, zlib.error):
        # tarfile's own words are a line for every way in which it tried to read the file
        raise ArchiveError(f"{source}: expected a folder or a whole .tar.gz file of a run.") from None
    return run_id


def _check_members(members: list[tarfile.TarInfo], source: Path) -> str:
    """Return the one top folder of an archive whose members are plain files below it."""
    tops = set()
    for member in members:
        path = PurePosixPath(member.name)
        _check_member(member, path, source)
        tops.add(path.parts[0])
    if len(tops) != 1:
        raise ArchiveError(f"{source}: expected one run folder at the top, found {len(tops)}.")
    return str(tops.pop())


def _check_member(member: tarfile.TarInfo, path: PurePosixPath, source: Path) -> None:
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ArchiveError(f"{source}: member {member.name!r} would land outside the runs folder; nothing imported.")
    is_plain = member.isfile() or member.isdir()
    is_inner_link = member.islnk() and ".." not in PurePosixPath(member.linkname).parts
    if not (is_plain or is_inner_link):
        raise ArchiveError(f"{source}: member {member.name!r} is not a plain file; nothing imported.")


def _check_folder(source: Path) -> None:
    for path in source.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArchiveError(f"{source}: {path.relative_to(source)} is not a plain file; nothing imported.")


def _check_run(folder: Path, run_id: str, source: Path) -> None:
    for name in REQUIRED_FILES:
        if not (folder / name).is_file():
            raise ArchiveError(f"{source}: holds no {name}, so it is no run folder.")
    try:
        check_run_id(run_id)
    except RunDirectoryError as error:
        raise ArchiveError(f"{source}: {error}") from None
    try:
        RunDirectory(folder).read_run_info()
        is_whole = isinstance(json.loads((folder / "spec.json").read_bytes()), dict)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ArchiveError(f"{source}: {' or '.join(REQUIRED_FILES)} is damaged, so it is no run folder.")
