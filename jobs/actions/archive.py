"""Runs in and out of a runs root: as a folder or as a `.tar.gz` file."""

import contextlib
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, check_run_id, parse_run_info
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.specs.any_job import shape_mistakes
from exgrpo_core.bounded_json import UnreadableFileError, open_plain, parse_json, read_plain
from exgrpo_core.durable_files import explain, is_disk_full
from exgrpo_core.errors import InputError
from exgrpo_core.recording.attempt_gate import FileLock

REQUIRED_FILES = ("spec.json", "run.json")
_PROCESS_FILES = ("lock", "heartbeat.json", "ray.json")
"""Files that are about a process or a cluster's job, which does not work on the copy."""
MAX_DEPTH = 64
"""Folders inside each other that an archive may hold; a run has less than ten."""
MAX_MEMBERS = 200_000
"""Files and folders that the archive of a run may hold."""
_MAX_HEADER_BYTES = 1 << 20
"""Of the headers that have a long name or other fields of a member, which tarfile reads as a whole."""
_RUNS_AS_CODE = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"}
"""Suffixes of files that programs read with pickle, as verl reads its trainer's state."""
_PACKED = {".tar", ".gz", ".bz2", ".xz", ".lzma", ".z", ".zip"}
_CHUNK_BYTES = 1 << 20
_PREFIXES = (".importing-", ".adopting-", ".restoring-")
_LOCK_FILE = "staging.lock"
_TOO_DEEP = f"has folders deeper than {MAX_DEPTH}"


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

    Files are written to a hidden folder inside `runs_root`, which is renamed once it is complete and checked.

    Raises:
        ArchiveError: It is no run, holds anything but plain files, is too large for the disk, holds files that could
            run code when they are read and `trusts_pickles` is not set, or a run of this id exists already.
    """
    try:
        return _import_run(source, runs_root, trusts_pickles)
    except RecursionError:
        raise ArchiveError(f"{source}: {_TOO_DEEP}; nothing imported.") from None


def _import_run(source: Path, runs_root: Path, trusts_pickles: bool) -> str:
    if not source.exists():
        raise ArchiveError(f"{source}: does not exist; expected a folder or a .tar.gz file of a run.")
    if source.is_dir():
        _check_run(source, source, trusts_pickles)
    with _staging(runs_root) as staging:
        if source.is_dir():
            run_id = _check_name(source.resolve().name, source)
            _copy_folder(source, staging / run_id)
        else:
            unpack(source, staging, _PROCESS_FILES, max_members=MAX_MEMBERS)
            tops = [path.name for path in staging.iterdir()]
            if len(tops) != 1:
                raise ArchiveError(f"{source}: expected one run folder at the top, found {len(tops)}.")
            run_id = _check_name(tops[0], source)
            _check_run(staging / run_id, source, trusts_pickles)
        for request in ("stop", "requested"):
            (staging / run_id / "control" / request).unlink(missing_ok=True)
        destination = runs_root / run_id
        if destination.exists():
            raise ArchiveError(f"{source}: a run {run_id} is in {runs_root} already; remove or rename one of them.")
        for path in (staging / run_id, *(staging / run_id).rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        (staging / run_id).rename(destination)
    Journal(runs_root).append(JournalKind.IMPORTED, run_id, source=str(source))
    return run_id


def _copy_folder(source: Path, target: Path) -> None:
    num_bytes = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    if num_bytes > (free := shutil.disk_usage(target.parent).free):
        raise ArchiveError(
            f"{target.parents[2]}: {source} needs {num_bytes:,} bytes and {free:,} are free; nothing imported."
        )
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
    try:
        with staging_folder(runs_root, "importing") as staging:
            yield staging
    except OSError as error:
        raise ArchiveError(f"{runs_root}: cannot be written ({reason_of(error)}).") from None


def _write_archive(run: RunDirectory, destination: Path) -> None:
    unfinished = destination.with_name(destination.name + ".tmp")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=6) as archive:
            archive.add(run.path, arcname=run.run_id, filter=_anonymous)
        unfinished.rename(destination)
    finally:
        unfinished.unlink(missing_ok=True)


def _copy_whole(run: RunDirectory, destination: Path) -> None:
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
    return explain(error)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = PurePosixPath(member.name).name
    if _is_left_out(name) or not (member.isfile() or member.isdir() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return what is not copied: files of a process, unfinished ones, and links, which may lead anywhere."""
    return {name for name in names if _is_left_out(name) or (Path(folder) / name).is_symlink()}


def _is_left_out(name: str) -> bool:
    """Whether a file or folder is a process's or unfinished: hidden names are those of checkpoints being saved."""
    return name in _PROCESS_FILES or name.endswith(".tmp") or name.startswith(".")


def _check_name(run_id: str, source: Path) -> str:
    try:
        return check_run_id(run_id)
    except RunDirectoryError as error:
        raise ArchiveError(f"{source}: {error}") from None


def _check_run(folder: Path, source: Path, trusts_pickles: bool) -> None:
    """Check the files of a run that came from `source`, and the content of those that say what it is."""
    try:
        spec_text, info_text = (read_plain(folder / name) for name in REQUIRED_FILES)
    except FileNotFoundError as error:
        raise ArchiveError(
            f"{source}: holds no {Path(error.filename).name}, so it is no run; `exgrpo export` makes one file of a run."
        ) from None
    except (OSError, UnreadableFileError) as error:
        raise ArchiveError(f"{source}: cannot be read ({error}); make it again by `exgrpo export`.") from None
    try:
        parse_run_info(info_text, "run.json")
        spec = parse_json(spec_text)
    except UnreadableFileError as error:
        raise ArchiveError(f"{source}: spec.json: {str(error).rstrip('.')}; nothing imported.") from None
    except ValueError as error:
        raise ArchiveError(f"{source}: {error}") from None
    if mistakes := shape_mistakes(spec):
        raise ArchiveError(f"{source}: spec.json: {mistakes[0]}; nothing imported.")
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if not trusts_pickles and path.is_file() and _may_run_code(path):
            raise ArchiveError(
                f"{source}: {name} can run code when it is read (pickle), as verl's checkpoints can; nothing imported. "
                "Import it with --trust-pickles if you trust its author."
            )
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArchiveError(f"{source}: {name} is not a plain file; nothing imported.")


def _may_run_code(path: Path) -> bool:
    """Whether a file has a name of pickles, or their beginning, or is a zip file with one, as torch writes."""
    *_, suffix = [".", *(part for part in path.suffixes if part.lower() not in _PACKED)]
    if suffix.lower() in _RUNS_AS_CODE:
        return True
    with open_plain(path) as file:
        head = file.read(3)
    if head[:1] == b"\x80" and head[1:2] in {b"\2", b"\3", b"\4", b"\5"}:
        # The eight bytes of a length, with which safetensors begin, may be the same as those of an old pickle.
        return path.suffix != ".safetensors" or head[2:] == b"\x95"
    try:
        with open_plain(path) as file, zipfile.ZipFile(file) as archive:
            return any(name.lower().endswith(tuple(_RUNS_AS_CODE)) for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


class _Member(tarfile.TarInfo):
    """A member whose headers are bounded; tarfile reads those of long names and other fields into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        found = super().frombuf(buf, encoding, errors)
        is_data = found.type in tarfile.SUPPORTED_TYPES and found.type not in {
            tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE
        }  # fmt: skip
        if found.type == tarfile.GNUTYPE_SPARSE or (not is_data and found.size > _MAX_HEADER_BYTES):
            raise tarfile.FilterError(f"a header of more than {_MAX_HEADER_BYTES:,} bytes, or a sparse file")
        return found

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.FilterError("a sparse file")


def unpack(
    source: Path,
    folder: Path,
    leaves_out: Collection[str] = (),
    expected: str = "a folder, or a whole .tar or .tar.gz file of plain files",
    max_members: int = 10 * MAX_MEMBERS,
) -> int:
    """Unpack a tar file into `folder`, but for files of the names `leaves_out`; return the byte after its last member.

    A refusal says what was `expected`.

    Raises:
        ArchiveError: It is no whole tar file, has members that lead elsewhere, more than fits on the disk, more than
            `max_members`, folders deeper than `MAX_DEPTH` or headers that are too large.
    """
    if not hasattr(tarfile, "data_filter"):  # such as Debian 12's Python 3.11.2
        raise ArchiveError(f"{source}: this Python cannot unpack files safely; use Python 3.11.4 or newer.")
    free = left = shutil.disk_usage(folder).free
    try:
        with open_plain(source) as file, tarfile.open(fileobj=file, mode="r:*", tarinfo=_Member) as archive:
            for number, member in enumerate(archive):
                _check_bounds(source, member, number, max_members)
                left -= member.size
                if member.size < 0 or left < 0:
                    target = folder.parent.parent
                    raise ArchiveError(
                        f"{target}: {free:,} bytes are free, too few for what {source} holds; free some space there or "
                        "choose another folder; nothing is written."
                    )
                if PurePosixPath(member.name).name not in leaves_out:
                    archive.extract(member, folder, filter="data")
            end = archive.offset
            # At the end of what follows the members, gzip has a checksum of everything.
            while archive.fileobj and archive.fileobj.read(_CHUNK_BYTES):
                pass
    except (ArchiveError, UnreadableFileError) as error:
        raise ArchiveError(str(error)) from None
    except OSError as error:
        is_source = not is_disk_full(error) and error.filename in {None, str(source)}
        where = f"{source}: cannot be unpacked" if is_source else f"{folder.parent.parent}: cannot be written"
        raise ArchiveError(f"{where} ({explain(error)}); nothing is written.") from None
    except (tarfile.TarError, EOFError, zlib.error, KeyError, RecursionError, OverflowError, ValueError) as error:
        # tarfile's message has a line for every format that it tried.
        why = f" ({error})" if isinstance(error, tarfile.FilterError) else ""
        raise ArchiveError(f"{source}: expected {expected}{why}; nothing is written.") from None
    return end


def _check_bounds(source: Path, member: tarfile.TarInfo, number: int, max_members: int) -> None:
    if number == max_members:
        raise ArchiveError(f"{source}: has more than {max_members:,} files and folders; nothing is written.")
    if len(PurePosixPath(member.name).parts) > MAX_DEPTH:
        raise ArchiveError(f"{source}: {_TOO_DEEP}; nothing is written.")


@contextmanager
def staging_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """Yield a new hidden folder in `parent` for importing, adopting or restoring; it is removed in the end.

    Folders of earlier programs that were killed are removed first: the kernel frees the lock of a killed one. What
    this user may not remove stays.
    """
    for folder in (path for prefix in _PREFIXES for path in parent.glob(f"{prefix}*")):
        lock = FileLock(folder / _LOCK_FILE)
        with contextlib.suppress(OSError):
            if not folder.is_symlink() and folder.is_dir() and lock.acquire():
                _remove(folder)
                lock.release()
    staging = Path(tempfile.mkdtemp(prefix=f".{purpose}-", dir=parent))
    lock = FileLock(staging / _LOCK_FILE)
    lock.acquire()
    content = staging / "content"
    content.mkdir()
    try:
        yield content
    finally:
        _remove(staging)
        lock.release()


def _remove(folder: Path) -> None:
    """Remove a folder, however deep: shutil calls itself for each level."""
    subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)
