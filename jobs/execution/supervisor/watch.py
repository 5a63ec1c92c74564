"""Watches one attempt on this machine: whether its worker lives, stops when requested and leaves no process."""

import logging
import signal
import time
from dataclasses import dataclass
from datetime import datetime

from exgrpo.jobs.machine.hardware import GPUS_VARIABLE
from exgrpo.jobs.runs.attempts import AttemptEnd, Heartbeat, read_heartbeat, read_outcome, write_outcome_of_lost
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS, INTERRUPTED, stop_grace
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.processes import (
    ProcessIdentity,
    boot_id,
    is_alive,
    signal_group,
    signal_leader,
    variable_of,
    works_on,
)
from exgrpo.jobs.runs.state import CONTACT_TIMEOUT_SECONDS, end_without_outcome, has_worker
from exgrpo_core.recording.attempt_gate import LOCK_FILE, FileLock
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

KILLED = (
    "It did not stop by itself and was killed; work after its newest checkpoint is lost; resume continues from there."
)
_LEAVE_SECONDS = 10.0
"""A worker that wrote its outcome has this long to end, with all its child processes."""


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """How long is waited, in seconds, until an attempt is ended or given up."""

    grace_seconds: float = DEFAULT_GRACE_SECONDS
    """From the request of a stop to SIGTERM, at least."""
    term_seconds: float = 30.0
    """From SIGTERM to SIGKILL."""
    silent_seconds: float = 10.0
    """Without a heartbeat, of which one comes every two seconds, until a worker that is not found is lost; on another
    machine at least `CONTACT_TIMEOUT_SECONDS`."""

    def grace_of(self, heartbeat: Heartbeat | None) -> float:
        """Return the seconds from the request to SIGTERM, by what the run does and how long that took recently."""
        if heartbeat is None:
            return self.grace_seconds
        return stop_grace(heartbeat.phase, heartbeat.phase_seconds, self.grace_seconds)


class StopClock:
    """Time since a stop was requested, by a monotonic clock; a new supervisor starts again from 0."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._seen_at: float | None = None

    def seconds(self) -> float:
        """Return the time since the request was first seen, negative while there is none."""
        if not self._run.stop_requested():
            self._seen_at = None
            return -1.0
        self._seen_at = time.monotonic() if self._seen_at is None else self._seen_at
        return time.monotonic() - self._seen_at


class AttemptWatch:
    """Watches one attempt; after a restart of the supervisor a new watch continues from files alone."""

    def __init__(
        self,
        run: RunDirectory,
        attempt: int,
        policy: StopPolicy,
        launcher: LocalLauncher,
        gpus: tuple[str, ...] | None = None,
    ) -> None:
        """Without `gpus` those of an attempt that was started before are in its worker's environment."""
        self.run = run
        self.attempt = attempt
        self._path = run.attempt_path(attempt)
        self._policy = policy
        self._launcher = launcher
        self._gpus = gpus
        self._worker: ProcessIdentity | None = None
        self._is_terminated = False
        self._is_killed = False
        self._stop_clock = StopClock(run)
        self._over_since: float | None = None
        self._beat_at: datetime | None = None
        self._beat_seen_at = time.monotonic()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that the attempt has for itself."""
        if self._gpus is None and (worker := self._find_worker()) is not None:
            names = variable_of(worker, GPUS_VARIABLE)
            self._gpus = tuple(names.split(",")) if names else ()
        return self._gpus or ()

    def start(self) -> None:
        """Start the attempt's worker, once.

        Raises:
            LaunchError: It could not be started.
        """
        self._worker = self._launcher.start(self.run, self.attempt, self.gpus)

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Stop following the attempt, which continues."""

    def poll(self) -> AttemptEnd | None:
        """Do what is due now; return the outcome once the attempt is over and none of its processes is left."""
        worker = self._find_worker()
        outcome = read_outcome(self._path)
        if outcome is not None:
            return outcome if self._is_process_group_gone(worker) else None
        if has_worker(self._path, worker):
            self._escalate_stop(worker)
            return None
        return self._finalize(worker)

    def _find_worker(self) -> ProcessIdentity | None:
        if self._worker is None:
            heartbeat = read_heartbeat(self._path)
            self._worker = heartbeat.worker if heartbeat else None
        return self._worker

    def _is_process_group_gone(self, worker: ProcessIdentity | None) -> bool:
        """Whether the process group is gone; some time after the outcome, kill what is left of it."""
        if worker is None or not works_on(worker, self._path):
            return True
        self._over_since = self._over_since or time.monotonic()
        if not is_alive(worker) or time.monotonic() - self._over_since > _LEAVE_SECONDS:
            signal_group(worker, signal.SIGKILL)
        return False

    def _grace_seconds(self) -> float:
        return self._policy.grace_of(read_heartbeat(self._path))

    def _escalate_stop(self, worker: ProcessIdentity | None) -> None:
        waited, grace_seconds = self._stop_clock.seconds(), self._grace_seconds()
        if worker is None or waited < grace_seconds or not works_on(worker, self._path):
            return
        if waited >= grace_seconds + self._policy.term_seconds:
            logger.warning("%s: killing the worker, which did not stop within %.0f s.", self.run.run_id, waited)
            self._is_killed = True
            signal_group(worker, signal.SIGKILL)
        elif not self._is_terminated:
            self._is_terminated = True
            signal_leader(worker, signal.SIGTERM)

    def _is_silent(self) -> bool:
        """Whether no heartbeat came for long, by this machine's clock: two machines' clocks are not compared."""
        heartbeat, now = read_heartbeat(self._path), time.monotonic()
        if heartbeat is None:
            return True
        if heartbeat.at != self._beat_at:
            self._beat_at, self._beat_seen_at = heartbeat.at, now
        # A network file system may show another machine's newest heartbeat late.
        least = CONTACT_TIMEOUT_SECONDS if heartbeat.worker.boot_id != boot_id() else 0.0
        return now - self._beat_seen_at >= max(self._policy.silent_seconds, least)

    def _finalize(self, worker: ProcessIdentity | None) -> AttemptEnd | None:
        """Write the outcome for a worker that is gone, under its lock, once its process group is gone.

        A child's outcome waits for its exit code, so that the reason does not depend on timing. An adopted worker is
        no child, and its exit code is unknown: it may be one of another machine, which is gone once it is silent.
        """
        if worker is not None and works_on(worker, self._path):
            signal_group(worker, signal.SIGKILL)
            return None
        exit_code = None if worker is None else self._launcher.exit_code(worker)
        is_ending = worker is not None and self._launcher.awaits_exit(worker)
        if is_ending or (exit_code is None and not (self._is_killed or self._is_silent())):
            return None
        lock = FileLock(self._path / LOCK_FILE)
        if not lock.acquire():
            return None
        try:
            is_overdue = self._stop_clock.seconds() >= self._grace_seconds() + self._policy.term_seconds
            if self._is_killed or is_overdue:  # another supervisor may have killed it
                return write_outcome_of_lost(self._path, RunStatus.STOPPED, KILLED)
            end = end_without_outcome(has_started=worker is not None, exit_code=exit_code)
            if end[0] is RunStatus.LOST and self.run.is_interrupted():
                end = RunStatus.STOPPED, INTERRUPTED
            return write_outcome_of_lost(self._path, *end)
        finally:
            lock.release()
