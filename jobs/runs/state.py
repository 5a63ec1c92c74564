"""The state of a run, by its files and its processes alone, and that of the supervisor."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from exgrpo.db.rows.spec_fields import RECORDED_KIND, UNREADABLE_SPEC
from exgrpo.jobs.runs.attempts import Heartbeat, read_heartbeat, read_outcome
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.directory import (
    SUPERVISOR_FILE,
    SUPERVISOR_LOCK,
    WORKBENCH_FOLDER,
    RunDirectory,
    RunDirectoryError,
)
from exgrpo.jobs.runs.processes import ProcessIdentity, boot_id, is_alive, signal_name, works_on
from exgrpo.jobs.specs.any_job import from_folder, shape_mistakes
from exgrpo.jobs.specs.base import ENTRY_POINTS as REWARD_ENTRY_POINTS
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_json, read_plain
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import FieldError, InputError, UserError
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.methods.loading import (
    ALLOWED_CODE_VARIABLE,
    CODE_FOLDER_VARIABLE,
    ENTRY_POINTS,
    KINDS,
    module_elsewhere,
)
from exgrpo_core.recording.attempt_gate import LOCK_FILE, FileLock, is_locked, this_boot
from exgrpo_core.recording.record_file import FILE_PATTERN
from exgrpo_core.recording.run import NOT_FINISHED
from exgrpo_core.recording.run_status import ENDED, RunStatus

CONTACT_FILE = "ray.json"
CONTACT_TIMEOUT_SECONDS = 30.0
"""A worker without a report of its cluster or a heartbeat for this long counts as lost."""


@dataclass(frozen=True, slots=True)
class RayContact:
    """Where an attempt's job is, and its last known state."""

    attempt_path: str
    """The attempt's folder as the cluster sees it; in a copied folder it names another one."""
    address: str
    submission_id: str
    is_submitted: bool
    """Whether the job was, or may have been, handed to Ray."""
    is_over: bool
    """Whether the job has ended with all its processes, or its state can no longer be read."""
    log_bytes: int
    """Bytes of the job's log that were copied to the run's log."""
    seen_at: float
    """When the cluster last reported the job as pending or running, in seconds since 1970."""


def write_contact(attempt_path: Path, contact: RayContact) -> None:
    """Replace the file; readers see the old or the new content, never a part."""
    write_whole(attempt_path / CONTACT_FILE, json.dumps(asdict(contact)), is_durable=False)


def read_contact(attempt_path: Path) -> RayContact | None:
    """Return the contact of this folder's job; None for attempts on this machine and for copied folders."""
    try:
        record = read_json(attempt_path / CONTACT_FILE)
        contact = RayContact(**record)
        texts = (contact.attempt_path, contact.address, contact.submission_id)
        numbers = (float(contact.seen_at), int(contact.log_bytes))
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    is_this_one = all(isinstance(text, str) for text in texts) and texts[0] == str(attempt_path.resolve())
    return contact if is_this_one and min(numbers) >= 0 else None


def has_recent_contact(contact: RayContact, heartbeat: Heartbeat | None) -> bool:
    """Whether a worker without an outcome wrote a heartbeat, or its cluster reported it, within the timeout.

    A time in the future is from another clock, and counts as too old.
    """
    return _is_recent(contact.seen_at) or (heartbeat is not None and _is_recent(heartbeat.at.timestamp()))


def _is_recent(at: float) -> bool:
    return abs(time.time() - at) < CONTACT_TIMEOUT_SECONDS


NEVER_QUEUED = "It was never queued; resume it to start it."
LOST_ATTEMPT = "attempts/{:04d} is missing, with what it recorded; copy it from a backup, or resume the run."
STOPPED_IN_QUEUE = "Stopped before it started."
GROWTH_SECONDS = 900.0
"""A recorded run of another machine counts as running for this long after its last line."""
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
        return other is None or replace(self, heartbeat=None) != replace(other, heartbeat=None)


def read_state(run: RunDirectory) -> RunState:
    """Return a run's state, by the files of its folder and its processes alone."""
    attempt = run.newest_attempt()
    if run.requested_attempt() > attempt:
        if run.stop_requested():
            return RunState(RunStatus.STOPPED, STOPPED_IN_QUEUE, attempt, None)
        return RunState(RunStatus.QUEUED, "", attempt, None)
    if attempt == 0:
        return RunState(RunStatus.STOPPED, NEVER_QUEUED, 0, None)
    if not run.attempt_path(attempt).is_dir():
        return RunState(RunStatus.LOST, LOST_ATTEMPT.format(attempt), attempt, None)
    return _attempt_state(run, attempt)


def _attempt_state(run: RunDirectory, attempt: int) -> RunState:
    path = run.attempt_path(attempt)
    heartbeat = read_heartbeat(path)
    outcome = read_outcome(path)
    if outcome is None and is_recorded(path):
        return _recorded_state(path, attempt)
    is_gone = outcome is None and not has_process(path, heartbeat)
    if is_gone:
        outcome = read_outcome(path)  # the worker may have written it, and ended, after the first look
    if outcome is not None:
        return RunState(outcome.status, outcome.reason, attempt, heartbeat, outcome.at)
    if is_gone:
        # Heartbeats stay on the machine that a run was copied from.
        has_started = heartbeat is not None or any(path.glob(FILE_PATTERN))
        return RunState(*end_without_outcome(has_started=has_started), attempt, heartbeat)
    if run.stop_requested():
        return RunState(RunStatus.STOPPING, "", attempt, heartbeat)
    return RunState(heartbeat.status if heartbeat else RunStatus.STARTING, "", attempt, heartbeat)


def is_recorded(attempt_path: Path) -> bool:
    """Whether a loop of the user's records the attempt, so that nobody here starts, stops or ends it.

    Its lock names a boot, that of a worker is empty; a copy of the folder may lack it, but says of which kind it is.
    """
    if _boot_of(attempt_path / LOCK_FILE):
        return True
    try:
        return read_json(attempt_path.parents[1] / "spec.json").get("kind") == RECORDED_KIND
    except (OSError, ValueError):
        return False


def _recorded_state(path: Path, attempt: int) -> RunState:
    """Return the state of a recorded attempt without an outcome: alive while it is locked or, elsewhere, grows."""
    lock = path / LOCK_FILE
    newest = max(file.stat().st_mtime for file in (path, *path.glob(FILE_PATTERN)))
    is_alive = is_locked(lock)
    if not is_alive and _boot_of(lock) != this_boot():
        is_alive = abs(time.time() - newest) < GROWTH_SECONDS
    if is_alive:
        return RunState(RunStatus.RUNNING, "", attempt, None)
    return RunState(RunStatus.STOPPED, NOT_FINISHED, attempt, None, datetime.fromtimestamp(newest, UTC))


def _boot_of(lock: Path) -> str:
    try:
        return read_plain(lock).decode("ascii", "replace")
    except (OSError, UnreadableFileError):
        return ""


def end_without_outcome(*, has_started: bool, exit_code: int | None = None) -> tuple[RunStatus, str]:
    """Return how an attempt ended whose worker is gone and wrote no outcome, by its exit code where that is known."""
    if not has_started:
        return RunStatus.LOST, "Its worker was never started; resume it."
    if not exit_code:
        return RunStatus.LOST, "Its process ended without an outcome; resume it from its newest checkpoint."
    if exit_code > 0:
        return RunStatus.FAILED, f"Its process ended with exit code {exit_code} before it could say why; see log.txt."
    if exit_code == -signal.SIGABRT:
        return RunStatus.FAILED, "Its process aborted, as libraries do when memory runs out; log.txt ends with why."
    why = ", as when memory runs out" if exit_code == -signal.SIGKILL else ""
    return (
        RunStatus.LOST,
        f"Its process was ended by {signal_name(-exit_code)}{why}; resume it from its newest checkpoint.",
    )


def has_process(attempt_path: Path, heartbeat: Heartbeat | None) -> bool:
    """Whether a process works on the attempt, on this machine, on another one or on a Ray cluster."""
    contact = read_contact(attempt_path)
    if contact is not None:
        return has_recent_contact(contact, heartbeat)
    if has_worker(attempt_path, heartbeat.worker if heartbeat else None):
        return True
    # The processes of another machine are not seen from here, and its locks may not be.
    return heartbeat is not None and heartbeat.worker.boot_id != boot_id() and _is_recent(heartbeat.at.timestamp())


def has_worker(attempt_path: Path, worker: ProcessIdentity | None) -> bool:
    """Whether the attempt's worker lives, or was started so recently that it may not hold its lock yet."""
    lock = attempt_path / LOCK_FILE
    if worker is not None:
        return is_alive(worker) and (works_on(worker, attempt_path) or is_locked(lock))
    if is_locked(lock):
        return True
    began = attempt_path.stat().st_mtime
    return abs(time.time() - began) < STARTUP_SECONDS  # a clock that was set back counts as long


@dataclass(frozen=True, slots=True)
class Description:
    """The content of `run.json` and `spec.json`, or what is shown in its place, and the damage."""

    info: dict[str, Any]
    spec: dict[str, Any]
    faults: list[Fault]


def describe_run(run: RunDirectory) -> Description:
    """Read the files that say what a run is; nothing that they hold raises an error."""
    faults = list[Fault]()
    try:
        info = run.read_run_info()
    except RunDirectoryError:
        faults.append(Fault(FaultKind.UNREADABLE, "run.json", details="name, parent and time of creation are unknown"))
        info = _stand_in(run)
    try:
        spec, is_changed = _read_spec(run)
        faults += [Fault(FaultKind.CHANGED, "spec.json")] if is_changed else []
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{run.spec_path}: ")
        faults.append(Fault(FaultKind.UNREADABLE, "spec.json", details=str(why)))
        spec = dict(UNREADABLE_SPEC)
    return Description(info, spec, faults)


def _read_spec(run: RunDirectory) -> tuple[dict[str, Any], bool]:
    content, crc = read_plain(run.spec_path), None
    spec = from_folder(parse_json(content), run.path)
    with contextlib.suppress(RunDirectoryError):
        crc = run.spec_crc()
    is_as_written = crc == crc32(content)  # and was checked then
    if not is_as_written and (mistakes := shape_mistakes(spec)):
        raise UnreadableFileError(mistakes[0])
    return spec, crc is not None and not is_as_written


def _stand_in(run: RunDirectory) -> dict[str, Any]:
    changed_at = datetime.fromtimestamp(run.path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    fields = {"name": run.run_id, "created_at": changed_at, "parent_run_id": None, "branched_from_step": None}
    return {"run_id": run.run_id} | fields


_TIMEOUT_SECONDS = 0.2


class SupervisorRunningError(UserError):
    """Another supervisor has this runs root already."""


class SingleInstance:
    """The lock of one runs root, held until `release` or until the process ends.

    The kernel frees it however the process ends.
    """

    def __init__(self, runs_root: Path, stop_grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """Take the lock.

        Raises:
            SupervisorRunningError: Another process holds it.
        """
        self._folder = runs_root / WORKBENCH_FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = datetime.now(UTC)
        self._stop_grace_seconds = stop_grace_seconds
        self._lock = FileLock(self._folder / SUPERVISOR_LOCK)
        if not self._lock.acquire(timeout_seconds=_TIMEOUT_SECONDS):
            raise SupervisorRunningError(f"A supervisor is already running for {runs_root}; stop it first.")

    def beat(self, num_unread: int) -> None:
        """Write a heartbeat, with how many ended runs the database lacks part of."""
        times = {"at": datetime.now(UTC), "since": self._since}
        record = {name: time.isoformat(timespec="milliseconds") for name, time in times.items()}
        numbers = {"stop_grace_seconds": self._stop_grace_seconds, "num_unread": num_unread}
        code = [os.environ.get(ALLOWED_CODE_VARIABLE, ""), os.environ.get(CODE_FOLDER_VARIABLE, "")]
        content = json.dumps({"pid": os.getpid(), **record, **numbers, "code": code})
        write_whole(self._folder / SUPERVISOR_FILE, content, is_durable=False)

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        self._lock.release()


@dataclass(frozen=True, slots=True)
class SupervisorHeartbeat:
    """Process id of a supervisor, the time of its newest heartbeat and of its start, None if that is unknown."""

    pid: int
    at: datetime
    since: datetime | None = None
    num_unread: int = 0
    """Ended runs that the database lacks part of."""
    stop_grace_seconds: float = DEFAULT_GRACE_SECONDS
    """How long it lets a stop take at least."""
    code: tuple[str, str] | None = None
    """Modules that its runs may load, separated by commas, and the folder where they are found."""

    @property
    def age_seconds(self) -> float:
        """Seconds since the heartbeat was written."""
        return (datetime.now(UTC) - self.at).total_seconds()


def newest_heartbeat(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the newest heartbeat of a supervisor, None if none ever ran here or its file is damaged."""
    try:
        record = read_json(runs_root / WORKBENCH_FOLDER / SUPERVISOR_FILE)
        at, since = (
            None if (text := record.get(name)) is None else datetime.fromisoformat(text).astimezone(UTC)
            for name in ("at", "since")
        )
        grace_seconds = float(record.get("stop_grace_seconds", DEFAULT_GRACE_SECONDS))
        num_unread = int(record.get("num_unread", 0))
        code = (str(record["code"][0]), str(record["code"][1])) if "code" in record else None
        pid = int(record["pid"])
        return None if at is None else SupervisorHeartbeat(pid, at, since, num_unread, grace_seconds, code)
    except (OSError, ValueError, LookupError, TypeError, OverflowError):
        return None


def read_supervisor(runs_root: Path) -> SupervisorHeartbeat | None:
    """Return the living supervisor of a runs root, None when there is none; its pid is 0 until its first heartbeat."""
    if not is_locked(runs_root / WORKBENCH_FOLDER / SUPERVISOR_LOCK):
        return None
    return newest_heartbeat(runs_root) or SupervisorHeartbeat(0, datetime.now(UTC))


def refuse_code(runs_root: Path, content: Mapping[str, Any]) -> None:
    """Refuse the fields of a specification that name code which the living supervisor, who starts runs, cannot load.

    Raises:
        FieldError: It is one.
    """
    supervisor = read_supervisor(runs_root)
    if supervisor is None or supervisor.code is None:
        return
    algorithm, data = content.get("algorithm", {}), content.get("data", {})
    named = [
        *((f"algorithm.{setting}", ENTRY_POINTS, [algorithm.get(setting, "")]) for setting in KINDS),
        ("data.rewards", REWARD_ENTRY_POINTS, list(data.get("rewards", ()))),
        ("reward_parts", REWARD_ENTRY_POINTS, list(content.get("reward_parts", ()))),
    ]
    for field, group, names in named:
        for name in names:
            if module := module_elsewhere(name, group, *supervisor.code):
                raise FieldError(
                    f"the workbench that is running cannot load {name}; end it, and start it again in the folder of "
                    f"{module} with {ALLOWED_CODE_VARIABLE}={module}.",
                    field,
                )
