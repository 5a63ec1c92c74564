"""One run's folder and the paths of its files, from which all else about the run follows."""

import contextlib
import logging
import os
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from exgrpo.jobs.specs.any_job import JobSpec, load_any_spec
from exgrpo.jobs.specs.train import SpecError, TrainSpec, dump_spec
from exgrpo_core.bounded_json import UnreadableFileError, read_plain, unseal
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import InputError
from exgrpo_core.recording.run_folder import RUN_ID, RunFolder, create_run_folder, make_run_id, read_attempt_number

logger = logging.getLogger(__name__)

WORKBENCH_FOLDER = "workbench"
SUPERVISOR_LOCK = "supervisor.lock"
SUPERVISOR_FILE = "supervisor.json"
LINKS_FILE = "links"
"""In the workbench's folder of a root made by `exgrpo view`, whose links are run folders elsewhere."""
_LOST_FOUND = "lost+found"  # a file system's own
_NO_RUNS = frozenset({WORKBENCH_FOLDER, _LOST_FOUND})
_MAX_STEP = 2**31 - 1
_SHUTDOWN = b"shutdown"
"""What the file of a stop's request holds if no user asked for it."""


class CommandError(InputError, ValueError):
    """A command that cannot be done; one sentence says why and what to do."""


class RunDirectoryError(CommandError):
    """A run folder that is missing, damaged or badly named; one sentence names it and what to do."""


def check_run_id(run_id: str) -> str:
    """Return `run_id` if it names a folder directly inside a runs root.

    Raises:
        RunDirectoryError: It could lead elsewhere, or is the workbench's folder.
    """
    if RUN_ID.fullmatch(run_id) is None or run_id in _NO_RUNS:
        raise RunDirectoryError(f"run id {run_id!r}: expected letters, digits and . _ + -, at most 80.")
    return run_id


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file that recorded content names, which may be from another machine.

    Raises:
        RunDirectoryError: The name leads outside the folder, also through symbolic links.
    """
    try:
        path = (folder / name).resolve()
        is_inside = folder.resolve() in path.parents
    except (OSError, ValueError):
        is_inside = False
    if not is_inside:
        raise RunDirectoryError(f"{folder}: names a file {name[:80]!r} outside of it; use another copy of the run.")
    return path


def parse_run_info(content: bytes, origin: str) -> dict[str, Any]:
    """Return what `run.json` says besides the id: name, created_at, parent_run_id, branched_from_step, spec_crc.

    Raises:
        RunDirectoryError: It is damaged: a field is missing or of another type.
    """
    try:
        info = {"spec_crc": None} | unseal(content)
        datetime.fromisoformat(info["created_at"]).astimezone(UTC)
        kinds = {"name": str, "created_at": str, "parent_run_id": str | None, "branched_from_step": int | None}
        kinds["spec_crc"] = int | None
        is_whole = all(isinstance(info[name], kind) for name, kind in kinds.items())
        is_whole = is_whole and 0 <= (info["branched_from_step"] or 0) <= _MAX_STEP
    except (ValueError, KeyError, TypeError, OverflowError):
        is_whole = False
    if not is_whole:
        raise RunDirectoryError(f"{origin}: missing or damaged, so this is no run folder.")
    return {name: info[name] for name in kinds}


class RunDirectory(RunFolder):
    """The folder of one run. Paths are returned even if the files do not exist yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.run_id = check_run_id(Path(os.path.abspath(self.path)).name)
        self.spec_path = self.path / "spec.json"
        """The specification, which never changes."""
        self.info_path = self.path / "run.json"
        """The run's id, name, time of creation and parent."""
        self.log_path = self.path / "log.txt"
        """What the worker printed."""
        self.buffer_path = self.path / "buffer"
        """Segments of the replay buffer."""
        self.checkpoints_path = self.path / "checkpoints"
        """Folders of checkpoints."""
        self.model_path = self.path / "model"
        """The model of the checkpoint that an evaluation scores; of training, folders `ID/step-...` of its start."""
        self.shards_path = self.path / "shards"
        """The same of an evaluation whose checkpoint has verl's shards, which are merged into `model_path`."""
        self.stop_path = self.path / "control" / "stop"
        """A file that exists while a stop is requested."""
        self._requested_path = self.path / "control" / "requested"

    @classmethod
    def create(
        cls,
        runs_root: Path,
        spec: JobSpec,
        *,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        branched_from_step: int | None = None,
    ) -> "RunDirectory":
        """Write the folder of a new run under a hidden name, then rename it.

        Raises:
            RunDirectoryError: A run of this id exists already, or libraries could not write below the runs root.
        """
        run_id = check_run_id(run_id if run_id is not None else make_run_id(datetime.now(UTC)))
        folder = Path(runs_root).resolve() / run_id
        if os.fsencode(folder).decode(errors="replace") != str(folder):
            raise RunDirectoryError(
                f"{str(folder.parent)!a}: its name is not UTF-8, so models cannot be saved there; take another folder."
            )
        content = dump_spec(spec, folder).encode()
        try:
            path = create_run_folder(runs_root, run_id, spec.name, content, (parent_run_id, branched_from_step))
        except FileExistsError:
            raise RunDirectoryError(f"{runs_root}: run {run_id} exists already; choose another id.") from None
        return cls(path)

    @classmethod
    def open(cls, runs_root: Path, run_id: str) -> "RunDirectory":
        """Return the folder of an existing run.

        Raises:
            RunDirectoryError: There is none, or the id leads outside `runs_root`.
        """
        path = Path(runs_root) / check_run_id(run_id)
        if _is_refused_link(path):
            raise RunDirectoryError(f"{path}: is a link, which could lead outside the runs root; move the folder here.")
        if why := why_unreadable(path):
            raise RunDirectoryError(f"{path}: cannot be read ({why}); let this user read it, as by chown.")
        if not is_run_folder(path):
            raise RunDirectoryError(
                f"{path}: is no run's folder, which holds a run.json; `exgrpo runs` lists all runs."
            )
        return cls(path)

    @property
    def keeps_model(self) -> bool:
        """Whether the folder holds the model of a checkpoint."""
        return self.model_path.is_dir() or self.shards_path.is_dir()

    def job_spec(self) -> JobSpec:
        """Read the specification of a job of any kind.

        Raises:
            SpecError: `spec.json` is missing or wrong.
        """
        crc = None
        with contextlib.suppress(RunDirectoryError):
            crc = self.spec_crc()
        return load_any_spec(self.spec_path, crc)

    def spec(self) -> TrainSpec:
        """Read the specification of a training run.

        Raises:
            SpecError: `spec.json` is missing or wrong, or that of another kind of job.
        """
        spec = self.job_spec()
        if not isinstance(spec, TrainSpec):
            raise SpecError(f"{self.spec_path}: kind: expected train, got {spec.kind}; name a training run.")
        return spec

    def read_run_info(self) -> dict[str, Any]:
        """Return `run.json`: run_id, name, created_at, parent_run_id, branched_from_step.

        Raises:
            RunDirectoryError: The file is missing or damaged.
        """
        info = self._read_info_file()
        info.pop("spec_crc")
        # The folder's name is the id: a copied and renamed folder is another run.
        return {"run_id": self.run_id} | info

    def spec_crc(self) -> int | None:
        """Return the CRC-32 of `spec.json` as it was written, None of one without it.

        Raises:
            RunDirectoryError: `run.json`, which has it, is missing or damaged.
        """
        crc: int | None = self._read_info_file()["spec_crc"]
        return crc

    def _read_info_file(self) -> dict[str, Any]:
        try:
            return parse_run_info(read_plain(self.info_path), str(self.info_path))
        except (OSError, UnreadableFileError):
            raise RunDirectoryError(f"{self.info_path}: missing or damaged, so this is no run folder.") from None

    def requested_attempt(self) -> int:
        """Return the newest attempt that a user asked for, 0 for none; the journal has the order of requests."""
        return read_attempt_number(self._requested_path)

    def request_attempt(self, attempt: int) -> None:
        """Record that a user asked for an attempt."""
        self._requested_path.parent.mkdir(exist_ok=True)
        write_whole(self._requested_path, str(attempt), is_durable=False)

    def stop_requested(self) -> bool:
        """Return whether a stop is requested."""
        return self.stop_path.exists()

    def request_stop(self, *, for_shutdown: bool = False) -> None:
        """Request a stop at the next step boundary; a user's request counts more than one for a shutdown."""
        self.stop_path.parent.mkdir(exist_ok=True)
        if not for_shutdown:
            self.stop_path.write_bytes(b"")
        elif not self.stop_requested():
            write_whole(self.stop_path, _SHUTDOWN)

    def is_interrupted(self) -> bool:
        """Return whether a shutdown requests the stop, after which the next supervisor resumes the run."""
        try:
            return self.stop_path.read_bytes() == _SHUTDOWN
        except OSError:
            return False

    def keep_stopped(self) -> bool:
        """Let no supervisor resume what a shutdown interrupted; return whether it did."""
        if is_interrupted := self.is_interrupted():
            self.request_stop()
        return is_interrupted

    def clear_stop(self) -> None:
        """Withdraw the request to stop."""
        self.stop_path.unlink(missing_ok=True)


def list_run_directories(runs_root: Path) -> list[RunDirectory]:
    """Return every run folder of a runs root, sorted by id; other folders are skipped."""
    return [RunDirectory(path) for path in paths_of_runs(runs_root) if is_run_folder(path)]


def list_unreadable(runs_root: Path) -> dict[str, str]:
    """Return why folders that may be runs cannot be read, by their names."""
    reasons = {path.name: why_unreadable(path) for path in paths_of_runs(runs_root)}
    return {name: why for name, why in reasons.items() if why}


def unreadable_below(folder: Path) -> dict[Path, str]:
    """Return why folders at and below `folder` cannot be listed; hidden ones, and a file system's own, do not count."""
    errors: list[OSError] = []
    for _, folders, _ in os.walk(folder, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
    unreadable = {
        Path(error.filename): error.strerror or str(error)
        for error in errors
        if not isinstance(error, FileNotFoundError)
    }
    return {path: why for path, why in unreadable.items() if path.name != _LOST_FOUND}


def paths_of_runs(runs_root: Path) -> list[Path]:
    """Return the paths in a runs root that have the name of a run, sorted; not all may be run folders."""
    names = sorted(os.listdir(runs_root)) if Path(runs_root).is_dir() else []
    return [Path(runs_root) / name for name in names if RUN_ID.fullmatch(name) and name not in _NO_RUNS]


def is_run_folder(path: Path) -> bool:
    """Whether a folder of the runs root is a run's; one that cannot be read is none, and is named once in the log."""
    if why := why_unreadable(path):
        warn_once(f"{path}: cannot be read ({why}), so it is passed over; let this user read it, as by chown.")
    return not _is_refused_link(path) and os.path.exists(path / "run.json")


def _is_refused_link(path: Path) -> bool:
    """Whether it is a link in a root that people and archives fill: it could lead outside."""
    return path.is_symlink() and not (path.parent / WORKBENCH_FOLDER / LINKS_FILE).exists()


def why_unreadable(path: Path) -> str:
    """Return why nobody can say whether a folder is a run's, "" of links and where it can be looked into."""
    try:
        if not path.is_symlink():
            os.lstat(path / "run.json")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


@cache
def warn_once(sentence: str) -> None:
    """Write a warning into the log unless this process did already."""
    logger.warning("%s", sentence)
