"""The bin: run folders that users deleted, kept inside the runs root until it is emptied."""

import shutil
from pathlib import Path

from exgrpo.jobs.runs.directory import (
    WORKBENCH_FOLDER,
    CommandError,
    RunDirectory,
    check_run_id,
    list_run_directories,
)
from exgrpo.jobs.runs.journal import Journal, JournalKind, waited_for
from exgrpo.jobs.runs.lookup import names_of
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.durable_files import explain
from exgrpo_core.recording.run_folder import RUN_ID
from exgrpo_core.recording.run_status import RunStatus

BIN_FOLDER = "bin"


@needs(Role.ADMIN)
def delete(runs_root: Path, run_id: str) -> None:
    """Move a run's folder into the bin, where `restore` finds it.

    Raises:
        CommandError: No such run, it has not ended, a queued job waits for it, or its folder cannot be moved.
    """
    run = RunDirectory.open(runs_root, run_id)
    state = read_state(run)
    if not state.is_ended:
        raise CommandError(f"{run_id} cannot be deleted: it is {state.status}; stop it first.")
    for other in list_run_directories(runs_root):
        if read_state(other).status is RunStatus.QUEUED and waited_for(other) == run.run_id:
            name = names_of(runs_root, [other])[other.run_id]
            raise CommandError(f"{run_id} cannot be deleted: {name} ({other.run_id}) waits for it; stop that first.")
    run.keep_stopped()
    _move(run.path, _folder(runs_root) / run.run_id)
    _record(runs_root, JournalKind.DELETED, undo=(_folder(runs_root) / run.run_id, run.path))


@needs(Role.ADMIN)
def restore(runs_root: Path, run_id: str) -> None:
    """Move a run's folder out of the bin again.

    Raises:
        CommandError: It is not in the bin, or there is a run of this id again.
    """
    source = _folder(runs_root) / check_run_id(run_id)
    if not source.is_dir():
        raise CommandError(f"{run_id} is not in the bin; `exgrpo bin list` lists what is.")
    _move(source, runs_root / run_id)
    _record(runs_root, JournalKind.RESTORED, undo=(runs_root / run_id, source))


@needs(Role.VIEWER)
def list_deleted(runs_root: Path) -> dict[str, str]:
    """Return the name of each run in the bin by its id, newest id first; a damaged folder's is its id."""
    folders = [
        RunDirectory(path)
        for path in sorted(_folder(runs_root).glob("*"), reverse=True)
        if RUN_ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]
    return {run_id: name or run_id for run_id, name in names_of(runs_root, folders).items()}


@needs(Role.ADMIN)
def empty(runs_root: Path) -> int:
    """Remove everything in the bin for good and return how many runs that were.

    Raises:
        CommandError: A folder cannot be removed, or the journal cannot be written.
    """
    run_ids = list(list_deleted(runs_root))
    for run_id in run_ids:
        try:
            shutil.rmtree(_folder(runs_root) / run_id)
            Journal(runs_root).append(JournalKind.REMOVED, run_id)
        except OSError as error:
            raise CommandError(f"{run_id}: cannot be removed whole ({error}); empty the bin again.") from None
    return len(run_ids)


def _folder(runs_root: Path) -> Path:
    return runs_root / WORKBENCH_FOLDER / BIN_FOLDER


def _move(source: Path, target: Path) -> None:
    if target.exists():
        raise CommandError(f"{target} already exists; move or rename it first.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    except OSError as error:
        raise CommandError(f"{source}: cannot be moved to {target} ({explain(error)}).") from None


def _record(runs_root: Path, kind: JournalKind, undo: tuple[Path, Path]) -> None:
    """Record a move; if the journal cannot be written, move the folder back."""
    moved, before = undo
    try:
        Journal(runs_root).append(kind, before.name)
    except OSError as error:
        moved.rename(before)
        raise CommandError(f"{before}: not moved, since the journal cannot be written ({explain(error)}).") from None
