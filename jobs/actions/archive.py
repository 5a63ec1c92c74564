"""Runs in and out of a runs root: as a folder or as a `.tar.gz` file."""

import json
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath

from exgrpo_core.errors import InputError
from jobs.runs.directory import RunDirectory, RunDirectoryError, check_run_id
from jobs.runs.journal import Journal, JournalKind

REQUIRED_FILES = ("spec.json", "run.json")
# A copied heartbeat would name a process that does not work on the copy.
_PROCESS_FILES = ("lock", "heartbeat.json")
_RUNS_AS_CODE = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")
"""Suffixes of files that programs read with pickle, as verl reads its trainer's state."""


class ArchiveError(InputError, ValueError):
    """A run that cannot be imported or exported; one sentence names what is wrong."""


def export_run(run: RunDirectory, target: Path, *, overwrites: bool = False) -> Path:
    """Copy a run to `target`: a `.tar.gz` file if it is named so, else into the folder `target`, as `target/RUN_ID`.

    Only a file is overwritten, and only with `overwrites`; a copied folder may hold the only copy of something.

    Raises:
        ArchiveError: The target exists already, its folder does not, or it cannot be written.
    """
    is_file = target.name.endswith((".tar.gz", ".tgz"))
    destination = target if is_file else target / run.run_id
    _check_destination(destination, is_file, overwrites)
    try:
        if is_file:
            _write_archive(run, destination)
        else:
            _copy_whole(run, destination)
    except OSError as error:
        raise ArchiveError(f"{destination}: cannot be written ({reason_of(error)}).") from None
    return destination


def import_run(source: Path, runs_root: Path, *, trusts_pickles: bool = False) -> str:
    """Copy a run from a folder or a `.tar.gz` file into `runs_root` and return its id.

    Files are written to a hidden folder inside `runs_root`, which is renamed once it is complete. An archive is
    checked before any of it is written.

    Raises:
        ArchiveError: It is no run, holds anything but plain files, is too large for the disk, holds files that could
            run code when they are read and `trusts_pickles` is not set, or a run of this id exists already.
    """
    if not source.exists():
        raise ArchiveError(f"{source}: does not exist; expected a folder or a .tar.gz file of a run.")
    if source.is_dir():
        _check_run(source, source.resolve().name, source)
    with _staging(runs_root) as staging:
        if source.is_dir():
            run_id = source.resolve().name
            _check_folder(source, trusts_pickles)
            _copy_folder(source, staging / run_id)
        else:
            run_id = _unpack(source, staging, trusts_pickles)
            _check_run(staging / run_id, run_id, source)
        (staging / run_id / "control" / "stop").unlink(missing_ok=True)
        destination = runs_root / run_id
        if destination.exists():
            raise ArchiveError(f"{source}: a run {run_id} is in {runs_root} already; remove or rename one of them.")
        (staging / run_id).rename(destination)
    Journal(runs_root).append(JournalKind.IMPORTED, run_id, source=str(source))
    return run_id


def _copy_folder(source: Path, target: Path) -> None:
    _check_room(sum(path.stat().st_size for path in source.rglob("*") if path.is_file()), target.parent, source)
    try:
        shutil.copytree(source, target, ignore=_left_out)
    except OSError as error:
        raise ArchiveError(f"{source}: cannot be copied ({reason_of(error)}).") from None


def _check_destination(destination: Path, is_file: bool, overwrites: bool) -> None:
    folder = destination.parent
    if not folder.is_dir():
        kinds = "an existing folder" if is_file else "a .tar.gz file or an existing folder"
        raise ArchiveError(f"{folder}: no such folder; create it first, or name {kinds}.")
    if destination.is_dir():
        raise ArchiveError(f"{destination}: exists already; choose another target.")
    if destination.exists() and not overwrites:
        raise ArchiveError(f"{destination}: exists already; choose another target, or overwrite it with --force.")


@contextmanager
def _staging(runs_root: Path) -> Iterator[Path]:
    runs_root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".importing-", dir=runs_root))
    try:
        yield staging
    except OSError as error:
        raise ArchiveError(f"{runs_root}: cannot be written ({reason_of(error)}).") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_archive(run: RunDirectory, destination: Path) -> None:
    unfinished = destination.with_name(destination.name + ".tmp")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=6) as archive:
            archive.add(run.path, arcname=run.run_id, filter=_anonymous)
        unfinished.rename(destination)
    finally:
        unfinished.unlink(missing_ok=True)


def _copy_whole(run: RunDirectory, destination: Path) -> None:
    """Copy a run's folder under a hidden name, then rename it."""
    unfinished = destination.with_name(f".exporting-{destination.name}")
    try:
        shutil.copytree(run.path, unfinished, ignore=_left_out)
        unfinished.rename(destination)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def reason_of(error: OSError) -> str:
    """Return why files could not be copied, as the system says it."""
    if isinstance(error, shutil.Error) and error.args and error.args[0]:
        return str(error.args[0][0][-1])  # of each file: source, target, reason
    return error.strerror or str(error)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = PurePosixPath(member.name).name
    if name in _PROCESS_FILES or name.endswith(".tmp") or not (member.isfile() or member.isdir() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return what is not copied: files of a process, unfinished ones, and links, which may lead anywhere."""
    return {
        name for name in names if name in _PROCESS_FILES or name.endswith(".tmp") or (Path(folder) / name).is_symlink()
    }


def _unpack(source: Path, staging: Path, trusts_pickles: bool) -> str:
    try:
        with tarfile.open(source, "r:*") as archive:
            members = archive.getmembers()
            run_id = _check_members(members, source, trusts_pickles)
            _check_room(sum(member.size for member in members), staging, source)
            archive.extractall(staging, members=members, filter="data")
    except OSError as error:
        raise ArchiveError(f"{source}: cannot be read ({error.strerror or error}).") from None
    except (tarfile.TarError, EOFError, zlib.error):
        # tarfile's message has a line for every format that it tried
        raise ArchiveError(f"{source}: expected a folder or a whole .tar.gz file of a run.") from None
    return run_id


def _check_members(members: list[tarfile.TarInfo], source: Path, trusts_pickles: bool) -> str:
    """Return the one top folder of an archive whose members are plain files below it."""
    tops = set()
    for member in members:
        path = PurePosixPath(member.name)
        _check_member(member, path, source)
        _check_no_pickle(path, source, trusts_pickles)
        tops.add(path.parts[0])
    if len(tops) != 1:
        raise ArchiveError(f"{source}: expected one run folder at the top, found {len(tops)}.")
    return _check_name(str(tops.pop()), source)


def _check_name(run_id: str, source: Path) -> str:
    try:
        return check_run_id(run_id)
    except RunDirectoryError as error:
        raise ArchiveError(f"{source}: {error}") from None


def _check_no_pickle(path: PurePath, source: Path, trusts_pickles: bool) -> None:
    if path.suffix.lower() in _RUNS_AS_CODE and not trusts_pickles:
        raise ArchiveError(
            f"{source}: {path} can run code when it is read (pickle), as verl's checkpoints can; nothing imported. "
            "Import it with --trust-pickles if you trust its author."
        )


def _check_room(num_bytes: int, folder: Path, source: Path) -> None:
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise ArchiveError(f"{source}: needs {num_bytes:,} bytes and {free:,} are free; nothing imported.")


def _check_member(member: tarfile.TarInfo, path: PurePosixPath, source: Path) -> None:
    if _leads_out(path) or not path.parts:
        raise ArchiveError(
            f"{source}: member {member.name!r} would be written outside the runs folder; nothing imported."
        )
    is_plain = member.isfile() or member.isdir()
    is_inner_link = member.islnk() and not _leads_out(PurePosixPath(member.linkname))
    if not (is_plain or is_inner_link):
        raise ArchiveError(f"{source}: member {member.name!r} is not a plain file; nothing imported.")


def _leads_out(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts


def _check_folder(source: Path, trusts_pickles: bool) -> None:
    for path in source.rglob("*"):
        _check_no_pickle(path.relative_to(source), source, trusts_pickles)
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArchiveError(f"{source}: {path.relative_to(source)} is not a plain file; nothing imported.")


def _check_run(folder: Path, run_id: str, source: Path) -> None:
    for name in REQUIRED_FILES:
        if not (folder / name).is_file():
            raise ArchiveError(f"{source}: holds no {name}, so it is no run folder.")
    _check_name(run_id, source)
    try:
        RunDirectory(folder).read_run_info()
        is_whole = isinstance(json.loads((folder / "spec.json").read_bytes()), dict)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ArchiveError(f"{source}: {' or '.join(REQUIRED_FILES)} is damaged, so it is no run folder.")
