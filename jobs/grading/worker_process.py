"""One grading process as its parent sees it: started when first needed, killed when late, started anew."""

import contextlib
import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from jobs.grading.outcomes import Outcome

START_SECONDS = 120.0
PROGRAM = "jobs.grading.verifier"
PROJECT_ROOT = Path(__file__).resolve().parents[2]
READ_BYTES = 1 << 16
LOAD_ALLOWANCE = 4.0

Comparison = tuple[str, str, str]
"""Rule (`training` or `paper`), gold answer, given answer."""


class GraderError(RuntimeError):
    """The grading process does not start; the message says in one sentence what it reported."""


class GradingProcess:
    """Compares answers in a process of its own. Used by one thread at a time.

    An answer may take `seconds_per_answer` of the clock; on a busy machine as much CPU time, but never over four times
    as long, so that ordinary answers get the same verdict on any load.
    """

    def __init__(self, seconds_per_answer: float, memory_bytes: int) -> None:
        self._seconds = seconds_per_answer
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._is_abandoned = False
        self._pending = b""
        self._cpu_seconds = 0.0

    @property
    def process_id(self) -> int | None:
        """Id of the running process, or None."""
        return None if self._process is None else self._process.pid

    def grade(self, pairs: Sequence[Comparison]) -> list[Outcome]:
        """Return the outcome of each comparison, in order.

        A late or dying process costs the answer at which it was; the rest goes to a new one.

        Raises:
            GraderError: The process does not start, or `abandon` was called.
        """
        outcomes: list[Outcome] = []
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
            process.kill()

    def close(self) -> None:
        """Kill the process, if there is one, and wait until it is gone."""
        process, self._process, self._pending = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _grade_until_fault(self, pairs: Sequence[Comparison]) -> list[Outcome]:
        """Return outcomes up to and with the first answer that had to be killed or that took the process down."""
        outcomes: list[Outcome] = []
        is_sent = self._send(pairs)
        for _ in pairs:
            reply = self._read_answer() if is_sent else ""
            if reply:
                outcomes.append(Outcome(reply))
                continue
            self.close()
            return [*outcomes, Outcome.TIMEOUT if reply is None else Outcome.CRASH]
        return outcomes

    def _refuse_if_abandoned(self) -> None:
        if self._is_abandoned:
            raise GraderError("The grader was closed before it was done.")

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        limits = [str(self._memory_bytes), str(self._seconds), str(os.getpid())]
        # -P keeps the working folder off the import path; with one thread BLAS reserves no memory for others.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", PROGRAM, *limits],
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
        if self._read_reply(time.monotonic() + START_SECONDS) != "ready":
            code = self._process.poll()
            self.close()
            raise GraderError(
                f"The grading process did not start (exit status {code}); "
                f"run `{sys.executable} -c 'import math_verify'` to see why."
            )

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise GraderError("The grading process is not running.")
        return process.stdin, process.stdout

    def _send(self, pairs: Sequence[Comparison]) -> bool:
        requests, _ = self._pipes()
        try:
            requests.write(json.dumps(list(pairs)).encode() + b"\n")
            requests.flush()
        except OSError:
            return False
        return True

    def _read_answer(self) -> str | None:
        """Return one reply, an empty text if the process has ended, or None if it is late by clock and by CPU time."""
        started, cpu_before = time.monotonic(), self._cpu_seconds
        deadline = started + self._seconds
        last_deadline = started + LOAD_ALLOWANCE * self._seconds
        while (reply := self._read_reply(deadline)) is None and deadline < last_deadline:
            cpu_left = self._seconds - (self._cpu_used() - cpu_before)
            if cpu_left <= 0:
                return None
            deadline = min(last_deadline, time.monotonic() + max(cpu_left, 0.05))
        return reply

    def _cpu_used(self) -> float:
        try:
            times = psutil.Process(self.process_id).cpu_times()
        except psutil.Error:
            return math.inf
        return float(times.user + times.system)

    def _read_reply(self, deadline: float) -> str | None:
        """Return one reply, an empty text if the process has ended, or None at the deadline."""
        descriptor = self._pipes()[1].fileno()
        while b"\n" not in self._pending:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
                return None
            block = os.read(descriptor, READ_BYTES)
            if not block:
                return ""
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        reply, self._cpu_seconds = json.loads(line)
        return str(reply)
