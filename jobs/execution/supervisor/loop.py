"""The supervisor's loop: it polls everything twice a second, from files alone."""

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from exgrpo.jobs.execution.supervisor.ray_watch import RayWatch
from exgrpo.jobs.execution.supervisor.watch import AttemptWatch, StopPolicy
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.machine.hardware import Gpu, list_gpus
from exgrpo.jobs.runs.attempts import read_outcome, write_outcome_of_lost
from exgrpo.jobs.runs.directory import (
    RunDirectory,
    RunDirectoryError,
    is_run_folder,
    paths_of_runs,
)
from exgrpo.jobs.runs.journal import Journal, JournalKind, add_request, request_resume, waited_for
from exgrpo.jobs.runs.launchers.local import (
    ON_END_VARIABLE,
    WITHHELD_VARIABLES,
    LaunchError,
    LocalLauncher,
    start_detached,
)
from exgrpo.jobs.runs.launchers.ray_jobs import RayJobsLauncher
from exgrpo.jobs.runs.people import Person, Role, acting_as
from exgrpo.jobs.runs.state import RunState, SingleInstance, is_recorded, read_contact, read_state
from exgrpo.jobs.specs.any_job import local_gpus
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo_core.durable_files import is_disk_full
from exgrpo_core.methods.loading import CODE_FOLDER_VARIABLE
from exgrpo_core.recording.run_folder import AttemptClaimedError
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)
_STDERR = 2


def start_command(run: RunDirectory, status: RunStatus) -> None:
    """Start the command of `EXGRPO_ON_END` with the run's directory and its status; nothing waits for its end.

    It starts in the folder in which the workbench was started, where no run writes, and does not import the project.
    """
    command = os.environ.get(ON_END_VARIABLE, "")
    try:
        if words := shlex.split(command):
            own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(PROJECT_ROOT)]
            variables = dict.fromkeys(WITHHELD_VARIABLES, "") | {"PYTHONPATH": os.pathsep.join(own)}
            folder = Path(os.environ.get(CODE_FOLDER_VARIABLE, ""))
            start_detached([*words, str(run.path.resolve()), status.value], _STDERR, folder, variables)
    except (LaunchError, ValueError) as error:
        logger.warning("%s: %s", ON_END_VARIABLE, error)


LOOP_SECONDS = 0.5
LOST_SECONDS = 5.0
"""Time between two looks at runs that were declared lost."""
_WORKBENCH = Person("the workbench", Role.ADMIN)
_CLOSE_SECONDS = 30.0


Watch = AttemptWatch | RayWatch
"""Follows one attempt. Calls return at once and must come from one thread."""


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """How many runs may run at once, and how long a stop may take."""

    max_running: int = 1
    stop_policy: StopPolicy = field(default_factory=StopPolicy)
    resumes_interrupted: bool = False
    """Whether runs continue that a shutdown interrupted or left queued: not by a command that follows a run."""


class Job:
    """A run as its supervisor knows it."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.watch: Watch | None = None
        self.state: RunState | None = None
        """The newest state; that it ended is known once no process of the run is left."""
        self.lost_attempt = 0
        """The attempt that was declared lost, until it is found alive after all."""
        self.had_ended = False
        """Whether the newest attempt had ended before this supervisor saw it."""
        self.last_error = ""

    @cached_property
    def num_gpus(self) -> int:
        """GPUs of this machine that the run uses."""
        try:
            return local_gpus(self.run.job_spec())
        except SpecError:
            return 0  # the worker reports the error

    @cached_property
    def waits_for(self) -> str | None:
        """The job that this one waits for."""
        return waited_for(self.run)


class Supervisor:
    """Starts, watches and stops the runs of one runs root; a root has at most one supervisor at a time.

    Its state is in files: if it is killed at any moment, the next supervisor continues from them.
    """

    def __init__(
        self, runs_root: Path, launcher: LocalLauncher | None = None, settings: SupervisorSettings | None = None
    ) -> None:
        """Take the lock of `runs_root`.

        Raises:
            SupervisorRunningError: Another supervisor holds it.
        """
        runs_root.mkdir(parents=True, exist_ok=True)
        self._settings = settings or SupervisorSettings()
        self._instance = SingleInstance(runs_root, self._settings.stop_policy.grace_seconds)
        self._runs_root = runs_root
        self._launcher = launcher or LocalLauncher()
        self._journal = Journal(runs_root)
        self._journal_offset = 0
        self._jobs: dict[str, Job] = {}
        self._requested_attempts: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._left: set[str] = set()
        self._gpus: list[Gpu] | None = None
        self._num_gpus = 0
        self._is_gpu_awaited = False
        self._is_ending = False
        self._look_at_lost_at = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._watched and not self._waiting

    @property
    def is_interrupted(self) -> bool:
        """Whether no job of this machine is left, but for those whose files cannot be read or written."""
        return not any(isinstance(job.watch, AttemptWatch) and not job.last_error for job in self._watched)

    @property
    def _watched(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.watch is not None]

    def state_of(self, run_id: str) -> RunState | None:
        """Return a run's state, which has ended once no process of the run is left; None before it is found."""
        if (job := self._jobs.get(run_id)) is None:
            return None
        state = read_state(job.run)
        if not state.is_ended or job.watch is None:
            job.state = state
        return job.state

    def leaves(self, run_id: str) -> bool:
        """Return whether a run stays queued for the next workbench."""
        return run_id in self._left

    def poll(self, num_unread: int = 0) -> None:
        """Read everything once and do what is due; `num_unread` ended runs are still to be ingested by others."""
        with contextlib.suppress(OSError):  # a full disk takes no heartbeat, but runs can still be supervised
            self._instance.beat(num_unread)
        self._launcher.reap()
        self._read_journal()
        self._discover()
        if time.monotonic() >= self._look_at_lost_at:
            self._look_at_lost_at = time.monotonic() + LOST_SECONDS
            for job in [job for job in self._jobs.values() if job.lost_attempt]:
                self._guarded(job, self._take_back)
        for job in self._watched:
            if self._is_ending and isinstance(job.watch, AttemptWatch):
                self._guarded(job, lambda job: job.run.request_stop(for_shutdown=True))
            self._guarded(job, self._watch)
        self._start_waiting()

    def interrupt(self) -> None:
        """Stop this machine's jobs with checkpoints and start none; the next supervisor resumes what was stopped."""
        self._is_ending = True
        for job in self._jobs.values():
            job.last_error = ""
        if self._waiting:
            with contextlib.suppress(OSError), acting_as(_WORKBENCH):
                self._journal.append(JournalKind.SHUT_DOWN, "")

    def close(self) -> None:
        """Release the lock; running jobs continue."""
        watches = [job.watch for job in self._watched if job.watch is not None]
        for watch in watches:
            watch.close()
        give_up_at = time.monotonic() + _CLOSE_SECONDS
        for watch in watches:
            watch.close(max(0.0, give_up_at - time.monotonic()))
        self._instance.release()

    def _read_journal(self) -> None:
        entries, self._journal_offset = self._journal.read_from(self._journal_offset)
        for entry in entries:
            if entry.kind is JournalKind.SHUT_DOWN and not self._settings.resumes_interrupted:
                self._left.update(self._waiting)
                self._waiting.clear()
            if add_request(self._requested_attempts, entry):
                self._left.discard(entry.run_id)
                self._waiting.pop(entry.run_id, None)
                self._waiting[entry.run_id] = self._requested_attempts[entry.run_id]

    def _discover(self) -> None:
        paths = {path.name: path for path in paths_of_runs(self._runs_root)}
        for run_id in self._jobs.keys() - paths.keys():
            if watch := self._jobs.pop(run_id).watch:
                watch.close()
        for run_id in paths.keys() - self._jobs.keys():
            if is_run_folder(paths[run_id]):
                self._jobs[run_id] = Job(RunDirectory(paths[run_id]))
                self._guarded(self._jobs[run_id], self._adopt)

    def _adopt(self, job: Job) -> None:
        attempt = job.run.newest_attempt()
        path = job.run.attempt_path(attempt)
        job.had_ended = read_outcome(path) is not None
        if path.is_dir() and not (attempt and is_recorded(path)):
            job.watch = self._watch_of(job.run, attempt)

    def _watch_of(self, run: RunDirectory, attempt: int, gpus: tuple[str, ...] | None = None) -> Watch:
        """Return the watch of an attempt, which `gpus` is to start: on its Ray cluster, else on this machine."""
        policy, launcher = self._settings.stop_policy, self._launcher
        is_on_ray = read_contact(run.attempt_path(attempt)) is not None
        if not is_on_ray and (gpus is None or not _is_for_ray(run)):
            return AttemptWatch(run, attempt, policy, launcher, gpus)
        module = launcher.worker_module
        jobs = RayJobsLauncher(run, attempt, run.spec(), worker_module=module, term_seconds=policy.term_seconds)
        return RayWatch(run, attempt, policy, jobs)

    def _take_back(self, job: Job) -> None:
        """Watch a run again whose worker sends heartbeats after it was declared lost."""
        if job.watch is not None or job.run.newest_attempt() != job.lost_attempt:
            job.lost_attempt = 0
        elif read_outcome(job.run.attempt_path(job.lost_attempt)) is None:
            logger.warning("%s is alive after all: its worker sends heartbeats again.", job.run.run_id)
            job.lost_attempt = 0
            self._adopt(job)

    def _watch(self, job: Job) -> None:
        assert job.watch is not None
        end = job.watch.poll()
        if end is None:
            return
        job.watch.close()
        job.lost_attempt = job.watch.attempt if end.status is RunStatus.LOST else 0
        job.watch, run = None, job.run
        resumes = self._settings.resumes_interrupted and not self._is_ending
        if resumes and end.status is RunStatus.STOPPED and run.is_interrupted():
            attempt = run.newest_attempt() + 1
            with acting_as(_WORKBENCH):
                request_resume(run, attempt)
            self._requested_attempts[run.run_id] = attempt
            self._waiting.pop(run.run_id, None)
            self._waiting = {run.run_id: attempt, **self._waiting}  # before those that waited for it
        elif not job.had_ended:
            start_command(run, end.status)

    def _start_waiting(self) -> None:
        """Start waiting runs in the order of requests, up to the limit."""
        if self._is_ending:
            return
        self._gpus, self._is_gpu_awaited = None, False
        for run_id in [*self._waiting]:
            if (job := self._jobs.get(run_id)) is None:
                del self._waiting[run_id]  # its folder was removed; if it returns, a resume queues it again
            elif job.watch is None:
                error = self._guarded(job, self._start_if_due)
                if error is not None and not is_disk_full(error):
                    del self._waiting[run_id]

    def _start_if_due(self, job: Job) -> None:
        run = job.run
        attempt = self._waiting[run.run_id]
        is_over = run.newest_attempt() >= attempt or run.stop_requested()
        hold = None if is_over else find_hold(run, job.waits_for)
        if hold == "":
            return
        if hold:
            self._start(job, attempt, (), hold)
        elif not is_over:
            if len(self._watched) >= self._settings.max_running or (gpus := self._free_gpus(job)) is None:
                return
            self._start(job, attempt, gpus)
        del self._waiting[run.run_id]

    def _free_gpus(self, job: Job) -> tuple[str, ...] | None:
        """Return the GPUs that a run gets, the emptiest first; None while it waits for them, or behind one that does.

        It gets none if it uses none, or more than there are, which its worker refuses.
        """
        if not job.num_gpus:
            return ()
        gpus = self._list_gpus()
        if self._is_gpu_awaited:
            return None
        if job.num_gpus > len(gpus):
            return ()
        held = {name for job in self._watched if isinstance(job.watch, AttemptWatch) for name in job.watch.gpus}
        free = [gpu.visible_name for gpu in gpus if gpu.visible_name not in held]
        self._is_gpu_awaited = job.num_gpus > len(free)
        return None if self._is_gpu_awaited else tuple(free[: job.num_gpus])

    def _list_gpus(self) -> list[Gpu]:
        """Return the GPUs at this poll, the emptiest first; where some are missing, runs wait until the next one."""
        if self._gpus is None:
            self._gpus = sorted(list_gpus(), key=lambda gpu: gpu.used_bytes)
            self._is_gpu_awaited = len(self._gpus) < self._num_gpus
            self._num_gpus = len(self._gpus)
        return self._gpus

    def _start(self, job: Job, attempt: int, gpus: tuple[str, ...], hold: str = "") -> None:
        """Start an attempt, or let it fail with the reason `hold` or why it cannot start."""
        run = job.run
        with contextlib.suppress(AttemptClaimedError):
            run.claim_attempt(attempt)
            job.had_ended = False
            try:
                if hold:
                    raise LaunchError(hold)
                job.watch = self._watch_of(run, attempt, gpus)
                job.watch.start()
            except (LaunchError, OSError, ValueError) as error:
                fields = getattr(error, "fields", ())
                write_outcome_of_lost(run.attempt_path(attempt), RunStatus.FAILED, str(error), fields)
                if job.watch is None:  # else the watch sees the end
                    start_command(run, RunStatus.FAILED)

    def _guarded(self, job: Job, action: Callable[[Job], None]) -> Exception | None:
        """Do something with one run; return the error of one whose files are damaged, which is then skipped."""
        try:
            action(job)
        except Exception as error:  # noqa: BLE001 - files of one run, whatever they hold, must not end the others
            message = str(error) or type(error).__name__
            if job.last_error != message:
                logger.warning("%s is skipped: %s", job.run.run_id, message)
            job.last_error = message
            return error
        return None


def find_hold(run: RunDirectory, name: str | None) -> str | None:
    """Return None for a queued job that may start, "" for one that waits for the job `name`, else why it never can."""
    if name is None:
        return None
    try:
        state = read_state(RunDirectory.open(run.path.parent, name))
    except RunDirectoryError:
        return f"It waited for {name}, which is gone; start it again without waits_for."
    if not state.is_ended:
        return ""
    if state.status is RunStatus.FINISHED:
        return None
    reason = f": {state.reason}" if state.reason else "."
    return f"It waited for {name}, which was {state.status}{reason} Resume that one, then this one."


def _is_for_ray(run: RunDirectory) -> bool:
    try:
        spec = run.job_spec()
    except SpecError:
        return False  # the worker reports the error
    return isinstance(spec, TrainSpec) and spec.engine == "verl" and spec.verl.ray.address is not None
