"""Recognizing a process after its starter restarted, and ending it with its children."""

import contextlib
import os
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from exgrpo_core.recording.attempt_gate import this_boot

ATTEMPT_VARIABLE = "EXGRPO_ATTEMPT_PATH"
"""Environment variable of a worker and its children: the folder of its attempt."""

_TOLERANCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that leads its own session. `started_seconds` counts from boot, so clock changes do not matter."""

    pid: int
    started_seconds: float
    boot_id: str


@cache
def boot_id() -> str:
    """Return an id of the current boot of this machine and, of containers on it, of the one whose pids this sees.

    A pid says which process is meant only within one container, unlike a lock on a file (`this_boot`).
    """
    pids = ""
    with contextlib.suppress(OSError):
        pids = f" {os.readlink('/proc/self/ns/pid')}"
    boot = this_boot()
    return boot + pids if boot else str(int(psutil.boot_time()))


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process, None when there is none with this pid."""
    try:
        started_seconds = psutil.Process(pid).create_time() - psutil.boot_time()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None
    return ProcessIdentity(pid, round(started_seconds, 2), boot_id())


def peak_memory() -> int:
    """Return the largest memory that this program has had, in bytes; 0 where the system does not say."""
    # Of resource.getrusage a program inherits what the one that started it had.
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        return next((1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    return 0


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this process runs: same pid, start and boot, and not a zombie."""
    if not has_pid(identity):
        return False
    try:
        return psutil.Process(identity.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_pid(identity: ProcessIdentity) -> bool:
    """Whether the pid still belongs to this process, which may be a zombie."""
    current = identify(identity.pid) if identity.boot_id == boot_id() else None
    return current is not None and abs(current.started_seconds - identity.started_seconds) <= _TOLERANCE_SECONDS


def group_members(identity: ProcessIdentity) -> list[int]:
    """Return the pids of living processes in the session that `identity` leads or led, itself included.

    The kernel does not reuse a pid while it is a session's id, so another process with the leader's pid means that the
    session is empty.
    """
    if identity.boot_id != boot_id() or _pid_was_reused(identity):
        return []
    return [pid for pid in psutil.pids() if _session_of(pid) == identity.pid and not _is_zombie(pid)]


def works_on(identity: ProcessIdentity, attempt_path: Path) -> bool:
    """Whether a living process of the session was started for this attempt.

    A heartbeat is a file, which may have been copied or written by hand: the process that it names is trusted, and
    ended, only if it was started for the folder of the heartbeat.
    """
    return any(was_started_for(pid, attempt_path) for pid in group_members(identity))


def was_started_for(pid: int, attempt_path: Path) -> bool:
    """Whether a process, which this user can read, was started for this attempt."""
    return _variable_of(pid, ATTEMPT_VARIABLE) == str(attempt_path.resolve())


def variable_of(identity: ProcessIdentity, name: str) -> str | None:
    """Return an environment variable that a living process was started with, None where there is none."""
    return _variable_of(identity.pid, name) if is_alive(identity) else None


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_leader(identity: ProcessIdentity, signal_number: signal.Signals) -> None:
    """Send a signal to the process itself if it is alive."""
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, signal_number)


def signal_group(identity: ProcessIdentity, signal_number: signal.Signals) -> int:
    """Send a signal to every process of the session and return how many there were."""
    members = group_members(identity)
    for pid in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)
    return len(members)


def _pid_was_reused(identity: ProcessIdentity) -> bool:
    current = identify(identity.pid)
    return current is not None and abs(current.started_seconds - identity.started_seconds) > _TOLERANCE_SECONDS


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _variable_of(pid: int, name: str) -> str | None:
    try:
        return psutil.Process(pid).environ().get(name)
    except (psutil.Error, OSError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
