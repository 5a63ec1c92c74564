"""Watches one attempt that runs as a job on a Ray cluster: starts, follows and stops it, and declares it lost."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from exgrpo.jobs.execution.supervisor.watch import KILLED, StopClock, StopPolicy
from exgrpo.jobs.runs.attempts import AttemptEnd, read_heartbeat, read_outcome, write_outcome_of_lost
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.runs.launchers.ray_jobs import LaunchCancelledError, RayJobsLauncher
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayJob, RayJobsError, RayJobStatus
from exgrpo.jobs.runs.state import (
    CONTACT_TIMEOUT_SECONDS,
    STOPPED_IN_QUEUE,
    RayContact,
    end_without_outcome,
    read_contact,
    write_contact,
)
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
_OUTCOME_SECONDS = 10.0
"""A worker that ended by itself has written its outcome, which a network file system may show this long after."""
_STOP_AGAIN_SECONDS = 60.0
_LOG_BYTES_A_SECOND = 5_000_000
"""Ray returns whole logs only, so a long one is requested less often."""
_NOT_SUBMITTED = "The supervisor ended before it submitted the job to the cluster; resume it."
_FROZEN = "Its worker sent no heartbeat while its cluster called it running, and was ended; resume it."
_FORGOTTEN = "the cluster does not know the job any more; was it restarted?"


class RayWatch:
    """Watches one attempt on a cluster from a separate thread, so that a cluster that does not answer delays no one.

    After a restart of the supervisor a new watch continues from files and from the cluster's answers.
    """

    def __init__(self, run: RunDirectory, attempt: int, policy: StopPolicy, launcher: RayJobsLauncher) -> None:
        self.run = run
        self.attempt = attempt
        self._path = run.attempt_path(attempt)
        self._policy = policy
        self._launcher = launcher
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_new = False
        self._contact_at = time.monotonic()
        self._beat_at = 0.0
        self._new_beat_at: float | None = None
        self._is_frozen = False
        self._stop_clock = StopClock(run)
        self._stopped_at: float | None = None
        self._log_due_at = 0.0

    def start(self) -> None:
        """Begin to launch the job, once.

        Raises:
            LaunchError: The job may not be sent to this cluster.
        """
        self._launcher.check()
        write_contact(self._path, self._launcher.new_contact())
        self._is_new = True
        self.poll()

    def poll(self) -> AttemptEnd | None:
        """Return the outcome once the attempt is over and, as far as the cluster knows, no process is left."""
        outcome, contact = read_outcome(self._path), read_contact(self._path)
        if contact is None or (contact.is_over and outcome is not None):
            return outcome
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name=f"ray-{self.run.run_id}", daemon=True)
            self._thread.start()
        return None

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Stop following the attempt, which continues; wait at most this long for the thread."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._thread is None or not self._thread.is_alive():
            self._launcher.api.close()

    def _work(self) -> None:
        try:
            if self._is_new:
                self._is_new = False
                self._launch()
            elif self._contact().is_over:
                self._update(is_over=False)  # it was declared lost, and its worker sends heartbeats again
            while not self._contact().is_over and not self._is_closed.is_set():
                self._follow()
                self._is_closed.wait(POLL_SECONDS)
        except LaunchError as error:
            self._end(RunStatus.FAILED, str(error), error.fields)
        except LaunchCancelledError:
            if not self._is_closed.is_set():
                self._end(RunStatus.STOPPED, STOPPED_IN_QUEUE)
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("%s cannot be followed: %s", self.run.run_id, error)
            self._is_closed.wait(POLL_SECONDS)
        finally:
            if self._is_closed.is_set():
                self._launcher.api.close()

    def _contact(self) -> RayContact:
        contact = read_contact(self._path)
        if contact is None:
            raise FileNotFoundError(f"{self._path}: no contact of the Ray job is left.")
        return contact

    def _update(self, **changes: object) -> None:
        write_contact(self._path, replace(self._contact(), **changes))  # type: ignore[arg-type]

    def _log(self, line: str) -> None:
        with self.run.log_path.open("ab") as log:
            log.write(f"{line}\n".encode())

    def _launch(self) -> None:
        self._log(self._launcher.prepare(self._is_wanted))
        if not self._is_wanted():
            raise LaunchCancelledError
        self._update(is_submitted=True)
        self._launcher.submit()
        self._log(f"Submitted to Ray as {self._launcher.submission_id}.")

    def _is_wanted(self) -> bool:
        self._update(seen_at=time.time())
        return not self.run.stop_requested() and not self._is_closed.is_set()

    def _follow(self) -> None:
        self._read_heartbeat()
        try:
            job = self._launcher.api.job(self._launcher.submission_id)
            if job is None:
                self._check_contact(_FORGOTTEN if self._contact().is_submitted else "")
                return
            self._contact_at = time.monotonic()
            self._copy_log(job.is_over)
            if job.is_over:
                self._finalize(job)
            else:
                self._update(is_submitted=True, seen_at=time.time())
                self._escalate_stop()
        except RayJobsError as error:
            self._check_contact(str(error))

    def _read_heartbeat(self) -> None:
        """Record when a new heartbeat was seen, by this machine's clock: two machines' clocks are not compared."""
        heartbeat = read_heartbeat(self._path)
        beat_at = heartbeat.at.timestamp() if heartbeat else 0.0
        if beat_at != self._beat_at:
            self._beat_at = beat_at
            self._contact_at = self._new_beat_at = time.monotonic()

    def _check_contact(self, error: str) -> None:
        """Declare an attempt lost that neither the cluster nor a heartbeat has reported for too long."""
        if not error:
            self._end(RunStatus.LOST, _NOT_SUBMITTED)
        elif time.monotonic() - self._contact_at >= CONTACT_TIMEOUT_SECONDS:
            self._log(f"Ray: {error}")
            self._end(RunStatus.LOST, f"Its cluster is gone or out of reach: {error} Resume it from its checkpoint.")

    def _copy_log(self, is_over: bool) -> None:
        """Append what the job has printed since; while it runs, whole lines."""
        if not is_over and time.monotonic() < self._log_due_at:
            return
        printed = self._launcher.api.log(self._launcher.submission_id)
        self._log_due_at = time.monotonic() + len(printed) / _LOG_BYTES_A_SECOND
        end = len(printed) if is_over else printed.rfind(b"\n") + 1
        begin = self._contact().log_bytes
        if end > begin:
            with self.run.log_path.open("ab") as log:
                log.write(printed[begin:end])
            self._update(log_bytes=end)

    def _escalate_stop(self) -> None:
        now = time.monotonic()
        is_due = self._stopped_at is None or now - self._stopped_at >= _STOP_AGAIN_SECONDS
        self._is_frozen |= self._new_beat_at is not None and now - self._new_beat_at >= CONTACT_TIMEOUT_SECONDS
        grace_seconds = self._policy.grace_of(read_heartbeat(self._path))
        if is_due and (self._is_frozen or self._stop_clock.seconds() >= grace_seconds):
            logger.warning("%s: asking Ray to end the job, which does not stop or hangs.", self.run.run_id)
            self._launcher.api.stop(self._launcher.submission_id)
            self._stopped_at = now

    def _finalize(self, job: RayJob) -> None:
        if job.exit_code in (0, 1):
            self._wait_for_outcome()
        try:
            left = self._launcher.sweep(lambda: not self._is_closed.is_set())
        except RayJobsError as error:
            left = f"Whether processes of it are left could not be checked: {error}"
        if left:
            self._log(left)
        status, reason = self._end_without_outcome(job)
        self._end(status, f"{reason} {left}".strip())

    def _wait_for_outcome(self) -> None:
        give_up_at = time.monotonic() + _OUTCOME_SECONDS
        while read_outcome(self._path) is None and time.monotonic() < give_up_at:
            os.listdir(self._path)  # makes NFS refresh
            if self._is_closed.wait(0.5):
                return

    def _end_without_outcome(self, job: RayJob) -> tuple[RunStatus, str]:
        if self._is_frozen:
            return RunStatus.LOST, _FROZEN
        if job.status is RayJobStatus.STOPPED:
            was_asked = self.run.stop_requested()
            return (
                RunStatus.STOPPED,
                KILLED if was_asked else "It was ended from Ray; resume continues from a checkpoint.",
            )
        if job.exit_code is None:
            message = (job.message.splitlines() or ["it gave no reason"])[0].rstrip(".")
            has_run = read_heartbeat(self._path) is not None
            status = RunStatus.LOST if has_run else RunStatus.FAILED
            return status, f"Ray {'lost' if has_run else 'could not start'} it ({message})."
        return end_without_outcome(has_started=True, exit_code=job.exit_code)

    def _end(self, status: RunStatus, reason: str, fields: Sequence[str] = ()) -> None:
        write_outcome_of_lost(self._path, status, reason, fields)
        self._update(is_over=True)
