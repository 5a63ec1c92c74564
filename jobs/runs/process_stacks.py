"""What processes of a run do on this machine: their stacks by py-spy, what each waits for, and its sockets."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from exgrpo.jobs.runs.processes import was_started_for

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
