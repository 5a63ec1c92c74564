"""Starting what is missing of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from db.connections.session import Database
from db.rows.runs import RunRow
from jobs.actions import run_actions
from jobs.runs.directory import RunDirectory, list_run_directories
from jobs.runs.lookup import CommandError, state_of
from jobs.runs.status import RESUMABLE, RunStatus
from jobs.specs.settings import apply_settings
from jobs.specs.train import SpecError
from jobs.studies.definition import Study
from jobs.studies.matrix import RunKey, key_from_tags, spec_of
from jobs.studies.results import find_runs


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A wanted run that has not succeeded: the newest try, None where there was none."""

    key: RunKey
    run: RunRow | None


def pending_runs(database: Database, study: Study, keys: Sequence[RunKey]) -> list[PendingRun]:
    """Return the wanted runs that have not succeeded, in the order asked for."""
    found = find_runs(database, study)
    return [
        PendingRun(key, found.get(key)) for key in keys if key not in found or found[key].status != RunStatus.SUCCEEDED
    ]


def start(runs_root: Path, study: Study, pending: PendingRun, settings: Sequence[str] = ()) -> str:
    """Queue a run, or a new attempt where it was stopped, failed or lost, and return its id; one under way goes on.

    `settings` are `field=value` changes of a new run, such as a backbone or data of one's own.

    Raises:
        CommandError: It cannot be queued, or the run that it starts from has not succeeded.
        SpecError: The cell's settings contradict each other.
    """
    if pending.run is None:
        source = _starting_point(runs_root, study, pending.key)
        spec = apply_settings(spec_of(study, pending.key), [*settings, *source])
        return run_actions.submit(runs_root, spec)
    if pending.run.status in RESUMABLE:
        run_actions.resume(runs_root, pending.run.run_id)
    return pending.run.run_id


def _starting_point(runs_root: Path, study: Study, key: RunKey) -> list[str]:
    """Return the setting that names the checkpoint to start from, none for a cell that starts from the model itself."""
    name = study.cell(key.cell).starts_from
    if name is None:
        return []
    for run in reversed(list_run_directories(runs_root)):
        if _has_succeeded(runs_root, run, replace(key, cell=name)):
            return [f"model.source={run.run_id}@last"]
    raise CommandError(
        f"{key.cell}, seed {key.seed}: starts from {name}, of which no run of this seed has succeeded; run that first."
    )


def _has_succeeded(runs_root: Path, run: RunDirectory, key: RunKey) -> bool:
    try:
        return key_from_tags(run.job_spec().tags) == key and state_of(runs_root, run).status is RunStatus.SUCCEEDED
    except SpecError:
        return False
