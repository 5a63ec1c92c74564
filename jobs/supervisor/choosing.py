"""Which launcher and watch an attempt gets: by the specification at its start, by its files later."""

from typing import Protocol

from jobs.launchers.local import LocalLauncher
from jobs.launchers.ray_jobs import RayJobsLauncher
from jobs.runs.attempts import Outcome
from jobs.runs.directory import RunDirectory
from jobs.runs.ray_contact import read_contact
from jobs.specs.train import SpecError, TrainSpec
from jobs.supervisor.ray_watch import RayWatch
from jobs.supervisor.watch import AttemptWatch, StopPolicy


class Watch(Protocol):
    """Follows one attempt. Calls return at once and must come from one thread."""

    @property
    def has_outcome(self) -> bool:
        """Whether the outcome is written; processes of the attempt may still be ending."""
        ...

    def start(self) -> None:
        """Start the attempt, once; raises LaunchError if it cannot be started."""
        ...

    def poll(self) -> Outcome | None:
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
