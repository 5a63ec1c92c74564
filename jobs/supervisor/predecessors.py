"""Jobs that wait for another job: whether it has finished, and why they cannot start where it never will."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.runs.queue import predecessor_of
from jobs.runs.state import read_state
from jobs.runs.status import RunStatus


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a queued job does not start now; with a `reason` it never will."""

    reason: str = ""


def find_hold(run: RunDirectory, requested: Mapping[str, int], names: dict[str, str | None]) -> Hold | None:
    """Return what keeps a queued job from starting, None where nothing does.

    Args:
        run: The queued job.
        requested: The newest attempt that the journal asks for, by job.
        names: Which job each job waits for, as far as it was read before; specifications never change.
    """
    if run.run_id not in names:
        names[run.run_id] = predecessor_of(run)
    name = names[run.run_id]
    if name is None:
        return None
    other = _open(run.path.parent, name)
    if other is None:
        return Hold(f"It waited for {name}, which is gone; start it again without waits_for.")
    state = read_state(other, requested.get(name, 0))
    if not state.is_ended:
        return Hold()
    if state.status is RunStatus.FINISHED:
        return None
    reason = f": {state.reason}" if state.reason else "."
    return Hold(f"It waited for {name}, which was {state.status}{reason} Resume that one, then this one.")


def _open(runs_root: Path, run_id: str) -> RunDirectory | None:
    try:
        return RunDirectory.open(runs_root, run_id)
    except RunDirectoryError:
        return None
