"""A worker's heartbeats and its requests to stop."""

import contextlib
import os
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from exgrpo.jobs.runs.attempts import Heartbeat, write_heartbeat
from exgrpo.jobs.runs.control import Phase
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.processes import identify, peak_memory
from exgrpo_core.recording.attempt_gate import exit_if_fenced
from exgrpo_core.recording.run_status import RunStatus

BEAT_SECONDS = 2.0
_NUM_RECENT = 20
"""So many times of each phase are kept."""


class WorkerControl:
    """Writes a heartbeat every two seconds from a thread and once a step; a stop request is a file or SIGTERM.

    If the attempt is over or a later attempt was claimed, the process ends instead of writing a heartbeat.
    """

    def __init__(self, run: RunDirectory, attempt_path: Path) -> None:
        identity = identify(os.getpid())
        if identity is None:
            raise RuntimeError("This process cannot read its start time.")
        self._identity = identity
        self._run = run
        self._attempt_path = attempt_path
        self._step = 0
        self._status = RunStatus.STARTING
        self._phase: Phase | None = None
        self._recent: defaultdict[Phase, deque[float]] = defaultdict(lambda: deque(maxlen=_NUM_RECENT))
        self._phase_seconds: dict[Phase, float] = {}
        self._is_signalled = False
        self._is_over = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._beat_until_over, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first heartbeat, start the thread, and handle SIGTERM and SIGINT as a request to stop."""
        signal.signal(signal.SIGTERM, self._record_signal)
        signal.signal(signal.SIGINT, self._record_signal)
        self._beat()
        self._thread.start()

    def stop_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._is_signalled or self._run.stop_requested()

    def heartbeat(self, step: int) -> None:
        """Write a heartbeat: `step` is done."""
        self._step = step
        self._beat()

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Write a heartbeat with the phase, and measure the block's time by a monotonic clock."""
        self._phase, began_at = phase, time.monotonic()
        self._beat()
        yield
        self._recent[phase].append(time.monotonic() - began_at)
        self._phase_seconds = {name: max(times) for name, times in self._recent.items()}
        self._phase = None

    def enter(self, status: RunStatus) -> None:
        """Write a heartbeat with the worker's new state."""
        self._status = status
        self._beat()

    def end(self) -> None:
        """End the thread of heartbeats."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _record_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_signalled = True

    def _beat_until_over(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            self._beat()

    def _beat(self) -> None:
        """Write a heartbeat; errors of a full disk are left to the recorder."""
        with contextlib.suppress(OSError):
            exit_if_fenced()
        now = datetime.now(UTC)
        heartbeat = Heartbeat(
            self._identity, self._status, self._step, now, self._phase, self._phase_seconds, peak_memory()
        )
        with self._writing, contextlib.suppress(OSError):
            write_heartbeat(self._attempt_path, heartbeat)
