"""One grading process as its parent sees it: started when first needed, its grading child killed when late."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import IO

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.tasks.grading.reward_function import Decision, Grade
from exgrpo.jobs.tasks.grading.verifier import READY

START_SECONDS = 120.0
END_SECONDS = 5.0
PROGRAM = "exgrpo.jobs.tasks.grading.verifier"
READ_BYTES = 1 << 16

Comparison = tuple[str, str, str]
"""Rule (`training` or `paper`), gold answer, given answer."""
_TIMEOUT = Decision(Grade.TIMEOUT, "the time limit")
_CRASH = Decision(Grade.CRASH, "the end of the grading process")


class GraderError(RuntimeError):
    """The grading process does not start; the message says in one sentence what it reported."""


class GradingProcess:
    """Compares answers in a process of its own. Used by one thread at a time.

    An answer may take `seconds_per_answer` of the clock, from when the process has it in hand. One that is late costs
    the child that grades; the next child is there in milliseconds, since the process keeps what is slow to load.
    """

    def __init__(self, seconds_per_answer: float, memory_bytes: int) -> None:
        self._seconds = seconds_per_answer
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._child: int | None = None
        self._is_abandoned = False
        self._pending = b""
        self._request = READY

    @property
    def process_id(self) -> int | None:
        """Id of the process that grades, or None."""
        return self._child

    def grade(self, pairs: Sequence[Comparison]) -> list[Decision]:
        """Return the outcome of each comparison and what decided, in order.

        A late or dying child costs the answer at which it was; the rest goes to the next one.

        Raises:
            GraderError: The process does not start, or `abandon` was called.
        """
        outcomes: list[Decision] = []
        while len(outcomes) < len(pairs):
            self._refuse_if_abandoned()
            self._start()
            outcomes += self._grade_until_fault(pairs[len(outcomes) :])
        self._refuse_if_abandoned()
        return outcomes

    def abandon(self) -> None:
        """Make a call of `grade` in another thread end soon, and every later one at once."""
        self._is_abandoned = True
        process = self._process
        if process is not None:
            process.terminate()

    def close(self) -> None:
        """End the process, if there is one, and wait until it and its child are gone."""
        process, self._process, self._child, self._pending = self._process, None, None, b""
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _grade_until_fault(self, pairs: Sequence[Comparison]) -> list[Decision]:
        """Return outcomes up to and with the first answer that had to be killed or that took its child down."""
        outcomes: list[Decision] = []
        if not self._send(pairs):
            self.close()
            return [_CRASH]
        for _ in pairs:
            reply = self._read_reply(time.monotonic() + self._seconds)
            if isinstance(reply, list) and reply:
                outcomes.append(Decision(Grade(reply[0]), reply[1]))
                continue
            if reply is None:
                self._replace_child()
            elif not reply:
                self.close()
            return [*outcomes, _TIMEOUT if reply is None else _CRASH]
        return outcomes

    def _replace_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        self._await_child()

    def _await_child(self) -> None:
        """Wait until a child says that it is ready; without one the process is of no use and ended."""
        deadline = time.monotonic() + START_SECONDS
        while isinstance(reply := self._read_reply(deadline), list) and reply:
            continue
        if not isinstance(reply, int):
            self.close()

    def _refuse_if_abandoned(self) -> None:
        if self._is_abandoned:
            raise GraderError("The grader was closed before it was done.")

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        process = self._process = subprocess.Popen(
            # -P keeps the working folder off the import path; with one thread BLAS reserves no memory for others.
            [sys.executable, "-P", "-m", PROGRAM, str(self._memory_bytes), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT_ROOT), os.environ.get("PYTHONPATH")))),
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONIOENCODING": "utf-8",
            },
        )
        self._await_child()
        if self._process is None:
            self._refuse_if_abandoned()
            raise GraderError(
                f"The grading process did not start (exit status {process.poll()}); "
                f"run `{sys.executable} -c 'import math_verify'` to see why."
            )

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise GraderError("The grading process is not running.")
        return process.stdin, process.stdout

    def _send(self, pairs: Sequence[Comparison]) -> bool:
        requests, _ = self._pipes()
        self._request += 1
        try:
            requests.write(json.dumps([self._request, list(pairs)]).encode() + b"\n")
            requests.flush()
        except OSError:
            return False
        return True

    def _read_reply(self, deadline: float) -> list[str] | int | None:
        """Return the next outcome of the newest request and its rule, or the process id of a child that is ready now.

        An empty list if the process has ended, None at the deadline.
        """
        while (line := self._read_line(deadline)) is not None and line:
            content: list[str]
            number, *content = json.loads(line)
            if number == READY:
                self._child = int(content[0])
                return self._child
            if number == self._request:
                return content
        return None if line is None else []

    def _read_line(self, deadline: float) -> bytes | None:
        """Return one line, an empty one if the process has ended, or None at the deadline."""
        descriptor = self._pipes()[1].fileno()
        while b"\n" not in self._pending:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not wait([descriptor], remaining):
                return None
            block = os.read(descriptor, READ_BYTES)
            if not block:
                return b""
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        return line
