"""A run's state, by its files and its processes alone."""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobs.runs.attempts import LOCK_FILE, Heartbeat, read_heartbeat, read_outcome
from jobs.runs.directory import RunDirectory
from jobs.runs.file_lock import is_locked
from jobs.runs.processes import ProcessIdentity, is_alive, works_on
from jobs.runs.ray_contact import has_recent_contact, read_contact
from jobs.runs.status import ENDED, RunStatus

NEVER_QUEUED = "It was never queued; resume it to start it."
STOPPED_IN_QUEUE = "Stopped before it started."
NEVER_STARTED = "Its worker was never started; resume it."
GONE = "Its process ended without an outcome; resume it from its newest checkpoint."
STARTUP_SECONDS = 30.0
"""A started worker takes its lock within this time, even on a busy machine."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's state. `attempt` is the newest one that was started, 0 before the first."""

    status: RunStatus
    reason: str
    attempt: int
    heartbeat: Heartbeat | None
    ended_at: datetime | None = None

    @property
    def is_ended(self) -> bool:
        """Whether no process of the run is alive."""
        return self.status in ENDED

    def differs_from(self, other: "RunState | None") -> bool:
        """Whether anything but the heartbeat changed since `other`."""
        return other is None or (self.status, self.reason, self.attempt) != (other.status, other.reason, other.attempt)


def read_state(run: RunDirectory, asked_attempt: int) -> RunState:
    """Return a run's state; `asked_attempt` is the newest attempt that the journal asks for, 0 for none."""
    attempt = run.newest_attempt()
    if asked_attempt > attempt:
        if run.stop_requested():
            return RunState(RunStatus.STOPPED, STOPPED_IN_QUEUE, attempt, None)
        return RunState(RunStatus.QUEUED, "", attempt, None)
    if attempt == 0:
        return RunState(RunStatus.STOPPED, NEVER_QUEUED, 0, None)
    return _attempt_state(run, attempt)


def _attempt_state(run: RunDirectory, attempt: int) -> RunState:
    path = run.attempt_path(attempt)
    heartbeat = read_heartbeat(path)
    outcome = read_outcome(path)
    if outcome is not None:
        return RunState(outcome.status, outcome.reason, attempt, heartbeat, outcome.at)
    if not has_process(path, heartbeat):
        return RunState(RunStatus.LOST, GONE if heartbeat else NEVER_STARTED, attempt, heartbeat)
    if run.stop_requested():
        return RunState(RunStatus.STOPPING, "", attempt, heartbeat)
    return RunState(heartbeat.status if heartbeat else RunStatus.STARTING, "", attempt, heartbeat)


def has_process(attempt_path: Path, heartbeat: Heartbeat | None) -> bool:
    """Whether a process works on the attempt, on this machine or on a Ray cluster."""
    contact = read_contact(attempt_path)
    if contact is not None:
        return has_recent_contact(contact, heartbeat)
    return has_worker(attempt_path, heartbeat.worker if heartbeat else None)


def has_worker(attempt_path: Path, worker: ProcessIdentity | None) -> bool:
    """Whether the attempt's worker lives, or was started so recently that it may not hold its lock yet."""
    lock = attempt_path / LOCK_FILE
    if worker is not None:
        return is_alive(worker) and (works_on(worker, attempt_path) or is_locked(lock))
    if is_locked(lock):
        return True
    return abs(time.time() - attempt_path.stat().st_mtime) < STARTUP_SECONDS  # a clock that was set back counts as long
