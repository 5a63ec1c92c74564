"""The supervisor's loop: it polls everything twice a second, from files alone."""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from exgrpo_core.durable_files import is_disk_full
from jobs.launchers.local import LaunchError, LocalLauncher
from jobs.launchers.ray_jobs import RayJobsLauncher
from jobs.machine.hardware import Gpu, list_gpus
from jobs.runs.attempts import write_outcome_of_lost
from jobs.runs.control import RunStatus
from jobs.runs.directory import (
    AttemptClaimedError,
    RunDirectory,
    RunDirectoryError,
    check_run_id,
    is_run_folder,
)
from jobs.runs.journal import Journal, JournalKind, acting_as, add_request, request_resume, waited_for
from jobs.runs.state import RunState, is_recorded, read_contact, read_state
from jobs.specs.any_job import local_gpus
from jobs.specs.train import SpecError, TrainSpec
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.instance import SingleInstance
from jobs.supervisor.ray_watch import RayWatch
from jobs.supervisor.watch import AttemptWatch, StopPolicy

logger = logging.getLogger(__name__)

LOOP_SECONDS = 0.5
_CLOSE_SECONDS = 30.0


Watch = AttemptWatch | RayWatch
"""Follows one attempt. Calls return at once and must come from one thread."""


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """How many runs may run at once, and how long a stop may take."""

    max_running: int = 1
    stop_policy: StopPolicy = field(default_factory=StopPolicy)
    resumes_interrupted: bool = False
    """Whether runs continue that a shutdown interrupted or left queued: not by a command that looks or follows."""


class Supervisor:
    """Starts, watches and stops the runs of one runs root; a root has at most one supervisor at a time.

    Its state is in files: if it is killed at any moment, the next supervisor continues from them.
    """

    def __init__(
        self,
        runs_root: Path,
        index: DatabaseIndex,
        launcher: LocalLauncher | None = None,
        settings: SupervisorSettings | None = None,
    ) -> None:
        """Take the lock of `runs_root`.

        Raises:
            SupervisorRunningError: Another supervisor holds it.
        """
        runs_root.mkdir(parents=True, exist_ok=True)
        self._settings = settings or SupervisorSettings()
        self._instance = SingleInstance(runs_root, self._settings.stop_policy.grace_seconds)
        self._runs_root = runs_root
        self._index = index
        self._launcher = launcher or LocalLauncher()
        self._journal = Journal(runs_root)
        self._journal_offset = 0
        self._runs: dict[str, RunDirectory] = {}
        self._states: dict[str, RunState] = {}
        self._requested_attempts: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._left: set[str] = set()
        self._waits_for: dict[str, str | None] = {}
        self._watches: dict[str, Watch] = {}
        self._nums_gpus: dict[str, int] = {}
        self._gpus: list[Gpu] | None = None
        self._num_gpus = 0
        self._is_gpu_awaited = False
        self._last_errors: dict[str, str] = {}
        self._unrecorded: set[str] = set()
        self._recorded: set[str] = set()
        self._unwritten: dict[str, RunState] = {}
        self._is_ending = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._watches and not self._waiting

    @property
    def is_settling(self) -> bool:
        """Whether a run has an outcome that a later poll will show, once no process of the run is left."""
        return any(watch.has_outcome for watch in self._watches.values())

    def state_of(self, run_id: str) -> RunState | None:
        """Return a run's state at the last poll."""
        return self._states.get(run_id)

    def leaves(self, run_id: str) -> bool:
        """Return whether a run stays queued for the next workbench."""
        return run_id in self._left

    def poll(self) -> None:
        """Read everything once and do what is due."""
        with contextlib.suppress(OSError):  # a full disk takes no heartbeat, but runs can still be supervised
            self._instance.beat(self._index.num_unread)
        self._launcher.reap()
        changed = self._unrecorded | self._read_journal()
        names = {entry.name for entry in os.scandir(self._runs_root) if _is_run_id(entry.name)}
        changed |= self._discover(names)
        for run_id in [*self._watches]:
            self._guarded(run_id, self._watch)
            changed.add(run_id)
        changed |= self._recorded | self._start_waiting()
        self._unrecorded = set()
        for run_id in changed:
            if error := self._guarded(run_id, self._record_state):
                self._record_unreadable(run_id, error)
        self._index.refresh()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Poll twice a second, at least once, until `is_over`; running jobs continue without it."""
        while True:
            began_at = time.monotonic()
            self.poll()
            if is_over():
                return
            time.sleep(max(0.0, LOOP_SECONDS - (time.monotonic() - began_at)))

    def interrupt_runs(self) -> None:
        """Stop this machine's jobs with checkpoints and start none; the next supervisor resumes what was stopped.

        Jobs whose files cannot be read or written are not waited for.
        """
        self._is_ending = True
        self._last_errors.clear()
        if self._waiting:
            with contextlib.suppress(OSError), acting_as("the workbench"):
                self._journal.append(JournalKind.SHUT_DOWN, "")
        while run_ids := [
            run_id
            for run_id, watch in self._watches.items()
            if isinstance(watch, AttemptWatch) and run_id not in self._last_errors
        ]:
            for run_id in run_ids:
                self._guarded(run_id, lambda run: run.request_stop(for_shutdown=True))
            time.sleep(LOOP_SECONDS)
            self.poll()

    def close(self) -> None:
        """Release the lock; running jobs continue."""
        for watch in self._watches.values():
            watch.close()
        give_up_at = time.monotonic() + _CLOSE_SECONDS
        for watch in self._watches.values():
            watch.close(max(0.0, give_up_at - time.monotonic()))
        self._index.close()
        self._instance.release()

    def _read_journal(self) -> set[str]:
        entries, self._journal_offset = self._journal.read_from(self._journal_offset)
        for entry in entries:
            self._unwritten.pop(entry.run_id, None)
            if entry.kind is JournalKind.SHUT_DOWN and not self._settings.resumes_interrupted:
                self._left.update(self._waiting)
                self._waiting.clear()
            if add_request(self._requested_attempts, entry):
                self._left.discard(entry.run_id)
                self._waiting.pop(entry.run_id, None)
                self._waiting[entry.run_id] = self._requested_attempts[entry.run_id]
        return {entry.run_id for entry in entries}

    def _discover(self, names: set[str]) -> set[str]:
        for run_id in self._runs.keys() - names:
            del self._runs[run_id]
            self._recorded.discard(run_id)
            self._states.pop(run_id, None)
            if watch := self._watches.pop(run_id, None):
                watch.close()
        new = {name for name in names - self._runs.keys() if is_run_folder(self._runs_root / name)}
        for run_id in new:
            self._runs[run_id] = RunDirectory(self._runs_root / run_id)
            self._guarded(run_id, self._adopt)
        return new

    def _adopt(self, run: RunDirectory) -> None:
        attempt = run.newest_attempt()
        if attempt and is_recorded(run.attempt_path(attempt)):
            self._recorded.add(run.run_id)
        elif run.attempt_path(attempt).is_dir():
            policy = self._settings.stop_policy
            self._watches[run.run_id] = watch_to_adopt(run, attempt, policy, self._launcher)

    def _watch(self, run: RunDirectory) -> None:
        end = self._watches[run.run_id].poll()
        if end is None:
            return
        watch = self._watches.pop(run.run_id)
        watch.close()
        if not watch.has_outcome:
            self._unwritten[run.run_id] = RunState(end.status, end.reason, watch.attempt, None, end.at)
        resumes = self._settings.resumes_interrupted and not self._is_ending
        if resumes and end.status is RunStatus.STOPPED and run.is_interrupted():
            attempt = run.newest_attempt() + 1
            with acting_as("the workbench"):
                request_resume(run, attempt)
            self._requested_attempts[run.run_id] = attempt
            first = {run.run_id: attempt}  # before those that waited for it
            self._waiting = first | self._waiting | first

    def _start_waiting(self) -> set[str]:
        """Start waiting runs in the order of requests, up to the limit; return those no longer waiting."""
        if self._is_ending:
            return set()
        before, self._gpus, self._is_gpu_awaited = {*self._waiting}, None, False
        for run_id in [*self._waiting]:
            if run_id not in self._runs:
                del self._waiting[run_id]  # its folder was removed; if it returns, a resume queues it again
            elif run_id not in self._watches:
                error = self._guarded(run_id, self._start_if_due)
                if error is not None and not is_disk_full(error):
                    del self._waiting[run_id]
        return before - self._waiting.keys()

    def _start_if_due(self, run: RunDirectory) -> None:
        attempt = self._waiting[run.run_id]
        is_over = run.newest_attempt() >= attempt or run.stop_requested()
        hold = None if is_over else find_hold(run, self._waits_for)
        if hold == "":
            return
        if hold:
            self._refuse(run, hold)
        elif not is_over:
            if len(self._watches) >= self._settings.max_running or (gpus := self._free_gpus(run)) is None:
                return
            self._start(run, gpus)
        del self._waiting[run.run_id]

    def _free_gpus(self, run: RunDirectory) -> tuple[str, ...] | None:
        """Return the GPUs that a run gets, the emptiest first; None while it waits for them, or behind one that does.

        It gets none if it uses none, or more than there are, which its worker refuses.
        """
        num_wanted = self._num_wanted(run)
        if not num_wanted:
            return ()
        gpus = self._list_gpus()
        if self._is_gpu_awaited:
            return None
        if num_wanted > len(gpus):
            return ()
        held = {name for watch in self._watches.values() if isinstance(watch, AttemptWatch) for name in watch.gpus}
        free = [gpu.visible_name for gpu in gpus if gpu.visible_name not in held]
        self._is_gpu_awaited = num_wanted > len(free)
        return None if self._is_gpu_awaited else tuple(free[:num_wanted])

    def _num_wanted(self, run: RunDirectory) -> int:
        if run.run_id not in self._nums_gpus:
            try:
                self._nums_gpus[run.run_id] = local_gpus(run.job_spec())
            except SpecError:
                return 0  # the worker reports the error
        return self._nums_gpus[run.run_id]

    def _list_gpus(self) -> list[Gpu]:
        """Return the GPUs at this poll, the emptiest first; where some are missing, runs wait until the next one."""
        if self._gpus is None:
            self._gpus = sorted(list_gpus(), key=lambda gpu: gpu.used_bytes)
            self._is_gpu_awaited = len(self._gpus) < self._num_gpus
            self._num_gpus = len(self._gpus)
        return self._gpus

    def _start(self, run: RunDirectory, gpus: tuple[str, ...]) -> None:
        attempt = self._requested_attempts[run.run_id]
        with contextlib.suppress(AttemptClaimedError):
            run.claim_attempt(attempt)
            try:
                watch = watch_to_start(run, attempt, self._settings.stop_policy, self._launcher, gpus)
                self._watches[run.run_id] = watch
                watch.start()
            except (LaunchError, OSError, ValueError) as error:
                fields = getattr(error, "fields", ())
                write_outcome_of_lost(run.attempt_path(attempt), RunStatus.FAILED, str(error), fields)

    def _refuse(self, run: RunDirectory, reason: str) -> None:
        attempt = self._requested_attempts[run.run_id]
        with contextlib.suppress(AttemptClaimedError):
            run.claim_attempt(attempt)
            write_outcome_of_lost(run.attempt_path(attempt), RunStatus.FAILED, reason)

    def _record_state(self, run: RunDirectory) -> None:
        state = self._unwritten.get(run.run_id) or read_state(run)
        if state.is_ended and run.run_id in self._watches:
            return  # the end is shown once no process of the run is left
        if state.differs_from(self._states.get(run.run_id)):
            self._index.record_state(run, state)
        self._states[run.run_id] = state

    def _record_unreadable(self, run_id: str, error: Exception) -> None:
        """List a run whose state cannot be read now, with the reason, and read it again at the next poll."""
        self._unrecorded.add(run_id)
        if run_id not in self._states:
            self._states[run_id] = RunState(RunStatus.LOST, f"It cannot be read: {error}", 0, None)
            self._index.record_state(self._runs[run_id], self._states[run_id])

    def _guarded(self, run_id: str, action: Callable[[RunDirectory], None]) -> Exception | None:
        """Do something with one run; return the error of one whose files are damaged, which is then skipped."""
        run = self._runs.get(run_id)
        if run is None:
            return None
        try:
            action(run)
        except Exception as error:  # noqa: BLE001 - files of one run, whatever they hold, must not end the others
            message = str(error) or type(error).__name__
            if self._last_errors.get(run_id) != message:
                logger.warning("%s is skipped: %s", run_id, message)
            self._last_errors[run_id] = message
            return error
        return None


def _is_run_id(name: str) -> bool:
    try:
        check_run_id(name)
    except RunDirectoryError:
        return False
    return True


def find_hold(run: RunDirectory, names: dict[str, str | None]) -> str | None:
    """Return None for a queued job that may start, "" for one that waits for another, else why it never can.

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
        return f"It waited for {name}, which is gone; start it again without waits_for."
    state = read_state(other)
    if not state.is_ended:
        return ""
    if state.status is RunStatus.FINISHED:
        return None
    reason = f": {state.reason}" if state.reason else "."
    return f"It waited for {name}, which was {state.status}{reason} Resume that one, then this one."


def _open(runs_root: Path, run_id: str) -> RunDirectory | None:
    try:
        return RunDirectory.open(runs_root, run_id)
    except RunDirectoryError:
        return None


def watch_to_start(
    run: RunDirectory, attempt: int, policy: StopPolicy, local: LocalLauncher, gpus: tuple[str, ...]
) -> Watch:
    """Return the watch that starts an attempt, on this machine or on the Ray cluster that the specification names."""
    try:
        spec = run.job_spec()
    except SpecError:
        return AttemptWatch(run, attempt, policy, local, gpus)  # the worker reports the error
    if not isinstance(spec, TrainSpec) or spec.engine != "verl" or spec.verl.ray.address is None:
        return AttemptWatch(run, attempt, policy, local, gpus)
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
