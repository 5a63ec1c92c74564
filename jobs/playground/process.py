"""The playground of the workbench: `exgrpo chat` in a process that ends with its answers, or when they are not wanted.

A model's memory goes with that process, and one at a time runs for all users of a server.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import IO, Any

from exgrpo_core.errors import UserError
from jobs.launchers.local import WITHHELD_VARIABLES, project_environment

_TICK_SECONDS = 0.25
_ONE_AT_A_TIME = Lock()


class ChatError(UserError):
    """No answer; one sentence says why."""


def ask_models(
    runs_root: Path, targets: Sequence[str], prompt: str, options: Sequence[str] = ()
) -> Generator[dict[str, Any] | None]:
    """Yield the records of `exgrpo chat --json` as they come, and None a few times a second while there is none.

    Closing the iterator ends the process.

    Raises:
        ChatError: The command failed; the message is its own.
    """
    while not _ONE_AT_A_TIME.acquire(timeout=_TICK_SECONDS):
        yield None
    try:
        with tempfile.TemporaryFile() as errors:
            yield from _records(_start(runs_root, targets, options, errors), prompt, errors)
    finally:
        _ONE_AT_A_TIME.release()


def _start(
    runs_root: Path, targets: Sequence[str], options: Sequence[str], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "jobs.cli", "chat", "--json", "--runs-root", str(runs_root.absolute())]
    return subprocess.Popen(
        [*command, *options, "--", *targets],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=project_environment(dict.fromkeys(WITHHELD_VARIABLES, "")),
    )


def _records(process: subprocess.Popen[bytes], prompt: str, errors: IO[bytes]) -> Generator[dict[str, Any] | None]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(prompt.encode())
        output, begun = process.stdout.fileno(), b""
        while True:
            if not wait([output], _TICK_SECONDS):
                yield None
                continue
            block = os.read(output, 1 << 16)
            if not block:
                break
            *lines, begun = (begun + block).split(b"\n")
            yield from map(json.loads, lines)
        if process.wait() != 0:
            errors.seek(0)
            messages = errors.read().decode(errors="replace").strip().splitlines()
            raise ChatError(messages[-1] if messages else f"The answers ended with code {process.returncode}.")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
