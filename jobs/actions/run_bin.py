"""The bin: run folders that users deleted, kept inside the runs root until it is emptied."""

import shutil
from pathlib import Path

from jobs.runs.directory import WORKBENCH_FOLDER, RunDirectory, RunDirectoryError, check_run_id
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError, open_run, state_of

BIN_FOLDER = "bin"


def delete(runs_root: Path, run_id: str) -> None:
    """Move a run's folder into the bin, where `restore` finds it.

    Raises:
        CommandError: No such run, it has not ended, or its folder cannot be moved.
    """
    run = open_run(runs_root, run_id)
    state = state_of(runs_root, run)
    if not state.is_ended:
        raise CommandError(f"{run_id} cannot be deleted: it is {state.status}; stop it first.")
    _move(run.path, _folder(runs_root) / run.run_id)
    Journal(runs_root).append(JournalKind.DELETED, run.run_id)


def restore(runs_root: Path, run_id: str) -> None:
    """Move a run's folder out of the bin again.

    Raises:
        CommandError: It is not in the bin, or there is a run of this id again.
    """
    try:
        source = _folder(runs_root) / check_run_id(run_id)
    except RunDirectoryError as error:
        raise CommandError(str(error)) from None
    if not source.is_dir():
        raise CommandError(f"{run_id} is not in the bin; `exgrpo bin` lists what is.")
    _move(source, runs_root / run_id)
    Journal(runs_root).append(JournalKind.RESTORED, run_id)


def list_deleted(runs_root: Path) -> dict[str, str]:
    """Return the name of each run in the bin by its id, newest id first."""
    names = {}
    for path in sorted(_folder(runs_root).glob("*/run.json"), reverse=True):
        try:
            names[path.parent.name] = str(RunDirectory(path.parent).read_run_info()["name"])
        except (RunDirectoryError, KeyError):
            names[path.parent.name] = path.parent.name
    return names


def empty(runs_root: Path) -> int:
    """Remove everything in the bin for good and return how many runs that were.

    Raises:
        CommandError: A folder cannot be removed.
    """
    run_ids = list(list_deleted(runs_root))
    for run_id in run_ids:
        try:
            shutil.rmtree(_folder(runs_root) / run_id)
        except OSError as error:
            raise CommandError(f"{error.filename}: cannot be removed ({error.strerror}).") from None
        Journal(runs_root).append(JournalKind.REMOVED, run_id)
    return len(run_ids)


def _folder(runs_root: Path) -> Path:
    return runs_root / WORKBENCH_FOLDER / BIN_FOLDER


def _move(source: Path, target: Path) -> None:
    if target.exists():
        raise CommandError(f"{target}: expected no such folder; move it away first.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    except OSError as error:
        raise CommandError(f"{source}: cannot be moved to {target} ({error.strerror}).") from None
