"""A reward by a user's function, called in a process of its own that is killed when it is late."""

import contextlib
import math
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import load_code
from jobs.runs.control import TrainingError

START_SECONDS = 120.0
SECONDS_PER_CALL = 5.0
Call = tuple[str, str, str]
"""The function's arguments: question, answer and response."""


class CodeReward:
    """Calls `module:function`, which takes question, answer and response and returns a number. Used by one thread.

    The process starts with the first call and ends with `close` or with this process.
    """

    def __init__(self, location: str, seconds_per_call: float = SECONDS_PER_CALL) -> None:
        self._location = location
        self._seconds = seconds_per_call
        self._running: tuple[BaseProcess, Connection] | None = None

    def rewards(self, calls: Sequence[Call]) -> list[float | None]:
        """Return the reward of each call, in order; None where it raises, is late or returns no finite number.

        Raises:
            TrainingError: The function cannot be imported.
        """
        return [self._reward(call) for call in calls]

    def close(self) -> None:
        """End the process, if there is one."""
        if self._running is not None:
            process, connection = self._running
            self._running = None
            process.kill()
            process.join()
            connection.close()

    def _reward(self, call: Call) -> float | None:
        connection = self._started()
        with contextlib.suppress(OSError, EOFError):
            connection.send(call)
            if connection.poll(self._seconds):
                value: float | None = connection.recv()
                return value
        self.close()
        return None

    def _started(self) -> Connection:
        if self._running is not None:
            return self._running[1]
        context = multiprocessing.get_context("spawn")
        connection, other = context.Pipe()
        process = context.Process(target=_serve, args=(other, self._location), daemon=True)
        process.start()
        other.close()
        self._running = process, connection
        fault = "it did not start"
        with contextlib.suppress(OSError, EOFError):
            fault = connection.recv() if connection.poll(START_SECONDS) else fault
        if fault:
            self.close()
            raise TrainingError(f"data.rewards: {self._location} cannot reward: {fault}.")
        return connection


def _serve(connection: Connection, location: str) -> None:
    """Send what is wrong with the function, nothing where it can be called, and then answer calls until they end."""
    try:
        function = load_code(location)
    except InputError as error:
        connection.send(str(error).rstrip("."))
        return
    connection.send("" if callable(function) else "it is no function")
    with contextlib.suppress(EOFError, OSError):
        while True:
            question, answer, response = connection.recv()
            try:
                value = float(function(question, answer, response))
            except Exception:  # noqa: BLE001 - whatever the user's code raises
                value = math.nan
            connection.send(value if math.isfinite(value) else None)
