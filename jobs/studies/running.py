"""Starting what is missing of a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from db.rows import RunRow
from db.session import Database
from jobs import commands
from jobs.spec_settings import apply_settings
from jobs.status import RESUMABLE, RunStatus
from jobs.studies.definition import Study
from jobs.studies.matrix import RunKey, spec_of
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
        CommandError: It cannot be queued.
        SpecError: The cell's settings contradict each other.
    """
    if pending.run is None:
        return commands.submit(runs_root, apply_settings(spec_of(study, pending.key), settings))
    if pending.run.status in RESUMABLE:
        commands.resume(runs_root, pending.run.run_id)
    return pending.run.run_id
