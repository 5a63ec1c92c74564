"""Which launcher and watch an attempt gets: by the specification at its start, by its files later."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobs.launchers.local import LocalLauncher
from jobs.launchers.ray_jobs import RayJobsLauncher
from jobs.runs.attempts import AttemptEnd
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.runs.journal import waited_for
from jobs.runs.state import read_contact, read_state
from jobs.specs.train import SpecError, TrainSpec
from jobs.supervisor.ray_watch import RayWatch
from jobs.supervisor.watch import AttemptWatch, StopPolicy


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a queued job does not start now; with a `reason` it never will."""

    reason: str = ""


def find_hold(run: RunDirectory, names: dict[str, str | None]) -> Hold | None:
    """Return what keeps a queued job from starting, None where nothing does.

    Args:
        run: The queued job.
        names: Which job each job waits for, as far as it was read before; specifications never change.
    """
    if run.run_id not in names:
        names[run.run_id] = waited_for(run)
    name = names[run.run_id]
    if name is None:
        return None
    other = _open(run.path.parent, name)
    if other is None:
        return Hold(f"It waited for {name}, which is gone; start it again without waits_for.")
    state = read_state(other)
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


class Watch(Protocol):
    """Follows one attempt. Calls return at once and must come from one thread."""

    @property
    def has_outcome(self) -> bool:
        """Whether the outcome is written; processes of the attempt may still be ending."""
        ...

    def start(self) -> None:
        """Start the attempt, once; raises LaunchError if it cannot be started."""
        ...

    def poll(self) -> AttemptEnd | None:
        """Do what is due now; return the outcome once the attempt is over and no process of it is left."""
        ...

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Stop following the attempt, which continues; wait at most this long for pending requests."""
        ...


def watch_to_start(run: RunDirectory, attempt: int, policy: StopPolicy, local: LocalLauncher) -> Watch:
    """Return the watch that starts an attempt, on this machine or on the Ray cluster that the specification names."""
    try:
        spec = run.job_spec()
    except SpecError:
        return AttemptWatch(run, attempt, policy, local)  # the worker reports the error
    if not isinstance(spec, TrainSpec) or spec.engine != "verl" or spec.verl.ray.address is None:
        return AttemptWatch(run, attempt, policy, local)
    return _ray_watch(run, attempt, policy, local, spec)


def watch_to_adopt(run: RunDirectory, attempt: int, policy: StopPolicy, local: LocalLauncher) -> Watch:
    """Return the watch of an attempt that was started before, and may be over."""
    if read_contact(run.attempt_path(attempt)) is None:
        return AttemptWatch(run, attempt, policy, local)
    return _ray_watch(run, attempt, policy, local, run.spec())


def _ray_watch(run: RunDirectory, attempt: int, policy: StopPolicy, local: LocalLauncher, spec: TrainSpec) -> RayWatch:
    module = local.worker_module
    launcher = RayJobsLauncher(run, attempt, spec, worker_module=module, term_seconds=policy.term_seconds)
    return RayWatch(run, attempt, policy, launcher)
