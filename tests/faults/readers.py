"""Sessions that go from page to page while runs are recorded, and the supervisor and web server that they load."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.app import web_server
from tests.app.page_session import PageSession, page_session

Choice = tuple[str, dict[str, str]]
"""A page and the query of its address."""


class Readers:
    """Sessions that each go from page to page until `end`."""

    def __init__(
        self,
        workbench: web_server.ServedWorkbench,
        num_sessions: int,
        choose: Callable[[int], Choice],
        look: Callable[[PageSession, random.Random], list[str]],
    ) -> None:
        """Let each session open what `choose` gives for its turn and then `look` at it, which returns faults."""
        self._workbench, self._choose, self._look = workbench, choose, look
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(num_sessions)]
        self.errors: list[object] = []
        self.seconds: list[float] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _read(self, number: int) -> None:
        rng, turn = random.Random(number), number
        try:
            with page_session(self._workbench) as session:
                while not self._is_over.is_set():
                    page, query = self._choose(turn)
                    began_at = time.monotonic()
                    self.errors += session.open(page, **query)
                    self.seconds.append(time.monotonic() - began_at)
                    self.errors += self._look(session, rng)
                    turn += 1
        except Exception as error:  # noqa: BLE001 - a thread hands its error to the test
            self.errors.append(error)


@contextmanager
def toy_supervisor(folder: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """Yield a real supervisor of toy runs and its runs root; `supervisor.log` in `folder` has what it says."""
    runs_root = folder / "runs"
    runs_root.mkdir()
    command = [sys.executable, "-m", "tests.jobs.supervisor.toy_supervisor", "--runs-root", str(runs_root)]
    with (folder / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield psutil.Process(process.pid), runs_root
        finally:
            process.terminate()
            process.wait(timeout=60)


def sizes(process: psutil.Process) -> tuple[int, int]:
    """Return resident bytes and open files."""
    return process.memory_info().rss, process.num_fds()
