"""What a training loop sees of the outside: whether it shall stop, and somebody to tell that it is alive."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import FrameType

from jobs.runs.attempts import Heartbeat, write_heartbeat
from jobs.runs.clock import monotonic_utc_now
from jobs.runs.directory import RunDirectory
from jobs.runs.fencing import exit_if_fenced
from jobs.runs.processes import identify
from jobs.runs.status import RunStatus

BEAT_SECONDS = 2.0


class WorkerControl:
    """Beats every two seconds from a thread and once a step; a stop may come as a file or as SIGTERM.

    A beat of a worker whose attempt is over or overtaken ends the process instead.
    """

    def __init__(self, run: RunDirectory, attempt_path: Path) -> None:
        identity = identify(os.getpid())
        if identity is None:
            raise RuntimeError("This process cannot read its own start time.")
        self._identity = identity
        self._run = run
        self._attempt_path = attempt_path
        self._step = 0
        self._status = RunStatus.STARTING
        self._is_signalled = False
        self._is_over = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._beat_until_over, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first heartbeat, keep beating, and take SIGTERM and SIGINT as a request to stop."""
        signal.signal(signal.SIGTERM, self._note_signal)
        signal.signal(signal.SIGINT, self._note_signal)
        self._beat()
        self._thread.start()

    def stop_requested(self) -> bool:
        """Tell whether somebody asked for a stop."""
        return self._is_signalled or self._run.stop_requested()

    def heartbeat(self, step: int) -> None:
        """Say that `step` is done."""
        self._step = step
        self._beat()

    def enter(self, status: RunStatus) -> None:
        """Say which state the worker is in."""
        self._status = status
        self._beat()

    def end(self) -> None:
        """Stop beating."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_signalled = True

    def _beat_until_over(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            self._beat()

    def _beat(self) -> None:
        """Write a heartbeat; a disk that takes none is for the recorder to report, not for a heartbeat."""
        with contextlib.suppress(OSError):
            exit_if_fenced()
        heartbeat = Heartbeat(self._identity, self._status, self._step, monotonic_utc_now())
        with self._writing, contextlib.suppress(OSError):
            write_heartbeat(self._attempt_path, heartbeat)
