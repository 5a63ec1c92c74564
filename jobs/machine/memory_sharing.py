"""Whether two processes can share a GPU's memory (CUDA IPC), through which verl gives trained weights to vLLM.

`python -m exgrpo.jobs.machine.memory_sharing [cuda|cpu]` tries it: one process sends a tensor as verl does, another
writes to it, and the first reads what was written. Each prints the stages that it enters; the last line is `works` if
it works.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo_core.errors import first_line

PROBE_SECONDS = 30.0
"""Most time of a probe; one that works takes about ten seconds, most of it for importing PyTorch twice."""
_END_SECONDS = 5.0
"""Most time in which a killed probe closes its output; a process that waits in the driver may not end at all."""
WORKS, UNTRIED = "works", "untried: "
_NUM_BYTES = 1 << 20
_BUSY = ("out of memory", "busy or unavailable")
"""What CUDA says of a GPU that other programs fill: this tells nothing of sharing."""


@dataclass(frozen=True, slots=True)
class MemorySharing:
    """What the probe found; `works` is None where it could not be tried."""

    works: bool | None
    detail: str


def probe_sharing(python: str, device: str = "cuda", seconds: float = PROBE_SECONDS) -> MemorySharing:
    """Return whether two processes of an interpreter can share memory of the first GPU that this one may use."""
    command = [python, "-P", "-m", "exgrpo.jobs.machine.memory_sharing", device]
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return MemorySharing(None, f"{python}: {error.strerror}")
    is_hanging = False
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        is_hanging = True
    finally:
        with suppress(ProcessLookupError):  # the receiver may outlive the sender
            os.killpg(process.pid, signal.SIGKILL)
    if is_hanging:
        try:
            output, _ = process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            output = (error.output or b"").decode()
    last = (output.strip().splitlines() or [f"{UNTRIED}the probe printed nothing"])[-1]
    if last.startswith(UNTRIED) or any(words in last for words in _BUSY):
        return MemorySharing(None, last.removeprefix(UNTRIED))
    ending = f", without an end after {seconds:.0f} s" if is_hanging else ""
    return MemorySharing(last == WORKS and not is_hanging, f"{last}{ending}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _guarded(side: Callable[[Connection, str], None], name: str, connection: Connection, device: str) -> None:
    """Run one side; its error is the last that is reported, unless the other side ended with one before."""
    try:
        side(connection, device)
    except (EOFError, ConnectionError):
        sys.exit(1)
    except ImportError as error:
        _say(f"{UNTRIED}{first_line(error)}")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - what the driver or PyTorch raises is the finding
        _say(f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}")
        sys.exit(1)


def _send(connection: Connection, device: str) -> None:
    import torch.multiprocessing

    if device == "cuda" and not torch.cuda.is_available():
        _say(f"{UNTRIED}PyTorch finds no GPU")
        return
    if device == "cuda":  # verl does so before each exchange: memory of expandable segments is not shared
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    connection.recv()
    _say("sender: exports the memory")
    tensor = torch.zeros(_NUM_BYTES, dtype=torch.uint8, device=device)
    connection.send(None)
    connection.send(tensor)  # PyTorch pickles a handle, not the numbers
    connection.recv()
    _synchronize(device)
    is_written = bool((tensor == 1).all())
    _say(WORKS if is_written else "sender: does not see what the receiver wrote")
    connection.send(None)


def _receive(connection: Connection, device: str) -> None:
    import torch.multiprocessing  # noqa: F401 - registers how tensors are unpickled

    connection.send(None)
    connection.recv()
    _say("receiver: opens the memory")
    tensor = connection.recv()
    _say("receiver: writes to it")
    tensor += 1
    _synchronize(device)
    connection.send(None)
    connection.recv()
    del tensor


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def main(arguments: list[str]) -> int:
    """Try it and return 0, or 1 if a side ended with an error."""
    device = arguments[0] if arguments else "cuda"
    context: Any = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    receiver = context.Process(target=_guarded, args=(_receive, "receiver", theirs, device), daemon=True)
    receiver.start()
    theirs.close()
    _guarded(_send, "sender", ours, device)
    ours.close()
    receiver.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
