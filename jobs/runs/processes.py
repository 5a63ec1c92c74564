"""Recognizing a process after its starter restarted, what it waits for, and ending it with its children."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
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


_SPY_SECONDS = 20.0
_MOST_COMMAND = 120
_FRAME = re.compile(r"^    (\S+) \((.+)\)$", re.MULTILINE)
"""A frame of a stack: function, file and line."""
WAITS = (
    (r"rebuild_ipc|_new_shared_cuda", "GPU memory that another process shares"),
    (r"receive_weights", "weights from a training worker"),
    (r"full_tensor|all_gather|all_reduce|reduce_scatter|barrier", "the other ranks"),
    (r"async_send_weights", "vLLM to take weights"),
    (r"wake_up|sleep_replicas", "vLLM to wake up or to free its memory"),
    (r"_await_prompts", "rollouts"),
    (r"get_objects|wait_for_object", "an answer of another process, through Ray"),
)
"""Functions on a stack, the innermost wait first, and what a process with them waits for."""


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """One process of a run."""

    pid: int
    command: str
    waits_for: str
    sockets: tuple[str, ...]
    stacks: str
    """Of each thread, or why they cannot be seen."""


def read_stacks(attempt_path: Path) -> list[ProcessStacks]:
    """Return the processes of an attempt that run Python on this machine; it takes about a second for each."""
    return [_read(process) for process in find_processes(attempt_path)]


def find_processes(attempt_path: Path) -> list[psutil.Process]:
    """Return the processes on this machine that were started for an attempt and run Python."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if was_started_for(process.pid, attempt_path) and Path(process.exe()).name.startswith("python"):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _read(process: psutil.Process) -> ProcessStacks:
    stacks = _dump(process.pid)
    try:
        command, sockets = " ".join(process.cmdline())[:_MOST_COMMAND], _sockets(process)
    except (psutil.Error, OSError):
        command, sockets = "ended meanwhile", ()
    return ProcessStacks(process.pid, command, waits_for(stacks), sockets, stacks)


def _dump(pid: int) -> str:
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    program = shutil.which("py-spy", path=os.pathsep.join(folders))
    if program is None:
        return "py-spy is not installed; install exgrpo-workbench[train] again."
    # It reads the memory of a process that goes on: one that is paused could miss a time limit.
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SPY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"py-spy did not answer within {_SPY_SECONDS:.0f} s."
    if done.returncode == 0:
        return done.stdout.strip()
    reason = " ".join(done.stderr.split())
    if "ermission" in reason:
        return (
            "py-spy has no permission to read the process: run this command as root or as the user of the run; on the "
            "host set kernel.yama.ptrace_scope to 0, in a container take --cap-add=SYS_PTRACE."
        )
    return f"py-spy: {reason[:300]}"


def waits_for(stacks: str) -> str:
    """Return what a process waits for, by the functions on its stacks; "" where there are no stacks."""
    frames = _FRAME.findall(stacks)
    functions = {function.rpartition(".")[2] for function, _ in frames}  # without their class
    for pattern, what in WAITS:
        if any(re.fullmatch(pattern, function) for function in functions):
            return what
    if not frames:
        return ""
    function, place = frames[0]
    return f"nothing that is known; it is in {function} ({place})"


def _sockets(process: psutil.Process) -> tuple[str, ...]:
    named = []
    for connection in process.net_connections(kind="all"):
        ends = [
            end if isinstance(end, str) else ":".join(map(str, end)) for end in (connection.laddr, connection.raddr)
        ]
        text = " -> ".join(filter(None, ends))
        if text:
            named.append(text if connection.status == psutil.CONN_NONE else f"{text} {connection.status.lower()}")
    return tuple(dict.fromkeys(named))
