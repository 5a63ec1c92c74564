"""The reward of training as a weighted sum of parts; verdicts stay those of the answer.

A part by a user's function is called in a process of its own that is killed when it is late.
"""

import contextlib
import logging
import math
import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.base import ANSWER, FORMAT, RANDOM, code_parts
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, RewardFunction, Verdict
from exgrpo_core.errors import InputError, first_line, shown
from exgrpo_core.methods.loading import load_code
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)
START_SECONDS = 120.0
SECONDS_PER_CALL = 5.0
CodeCall = tuple[str, str, str]
"""The function's arguments: question, answer and response."""
_MAX_TRACEBACK_CHARS = 4000


class _Fault(NamedTuple):
    """Why a call gave no reward: its kind, a phrase, and a traceback, empty without an exception."""

    kind: str
    phrase: str
    trace: str = ""


class CodeReward:
    """Calls `module:function`, which takes question, answer and response and returns a number. Used by one thread.

    The process starts with the first call and ends with `close` or with this process. The first fault of each kind is
    logged and kept in `faults`, a phrase by its kind.
    """

    def __init__(self, location: str, seconds_per_call: float = SECONDS_PER_CALL) -> None:
        self._location = location
        self._seconds = seconds_per_call
        self._running: tuple[BaseProcess, Connection] | None = None
        self.faults: dict[str, str] = {}

    def rewards(self, calls: Sequence[CodeCall]) -> list[float | None]:
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

    def _reward(self, call: CodeCall) -> float | None:
        connection = self._started()
        given: float | _Fault = _Fault("end", "its process ended")
        with contextlib.suppress(OSError, EOFError):
            connection.send(call)
            is_late = not connection.poll(self._seconds)
            given = _Fault("late", f"a call took longer than {self._seconds:g} s") if is_late else connection.recv()
        if isinstance(given, float):
            return given
        if given.kind in {"end", "late"}:
            self.close()
        if given.kind not in self.faults:
            self.faults[given.kind] = f"{self._location} gave no reward: {given.phrase}"
            logger.warning("%s.\n%s", self.faults[given.kind], given.trace)
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
            raise TrainingError(f"{self._location} cannot reward: {fault}.", "data.rewards")
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
                given = function(question, answer, response)
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises
                kind = type(error).__name__
                trace = "".join(traceback.format_exception(error.with_traceback(_outside(error))))
                connection.send(_Fault(kind, f"{kind}: {first_line(error)}", trace[-_MAX_TRACEBACK_CHARS:]))
            else:
                connection.send(_read_reward(given))


def _outside(error: Exception) -> TracebackType | None:
    """Return an exception's traceback without this file's frame."""
    return error.__traceback__ and error.__traceback__.tb_next


def _read_reward(given: object) -> float | _Fault:
    """Return what a function gave as a finite number, or what is wrong with it."""
    kind = type(given).__name__
    try:
        value = float(given)  # type: ignore[arg-type] # whatever it is
    except Exception:  # noqa: BLE001 - whatever the user's class raises
        return _Fault(f"returned {kind}", f"it returned {shown(given)}, expected a number")
    return (
        value if math.isfinite(value) else _Fault(f"returned {value}", f"it returned {value}, expected a finite number")
    )


Values = NDArray[np.float64]
"""A part's reward of each response; NaN where code gives none, which counts as 0."""
Part = Callable[[Sequence[Question], Sequence[Response], Sequence[Verdict]], Values]


@contextmanager
def open_reward_parts(answer: RewardFunction, weights: Mapping[str, float]) -> Iterator["RewardParts"]:
    """Yield a reward of weighted parts, and end the processes of those by code afterwards.

    Raises:
        InputError: A part is code that this machine does not allow.
    """
    with ExitStack() as stack:
        parts = {name: part for name, part in _PARTS.items() if name in weights}
        codes = {name: CodeReward(location) for name, location in code_parts(weights).items()}
        for name, code in codes.items():
            parts[name] = partial(_reward_by_code, stack.enter_context(closing(code)))
        yield RewardParts(answer, parts, weights, codes)


class RewardParts:
    """Rewards responses by parts and counts each, for its curve. Used by one thread at a time."""

    def __init__(
        self,
        answer: RewardFunction,
        parts: Mapping[str, Part],
        weights: Mapping[str, float],
        codes: Mapping[str, CodeReward],
    ) -> None:
        self._answer = answer
        self._codes = codes
        self._num_noticed = dict.fromkeys(codes, 0)
        self._is_first_step = True
        self._parts = parts
        self._weights = weights
        by_code = [name for name in weights if name not in _PARTS]
        self._curves = {name: f"code_{by_code.index(name) + 1}" if name in by_code else name for name in weights}
        self._graded: dict[str, list[float]] = {name: [] for name in weights}

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order, with the weighted sum as its reward."""
        return self.weigh(questions, responses, self._answer.grade(questions, responses))

    def weigh(
        self, questions: Sequence[Question], responses: Sequence[Response], verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Return the verdicts on answers, in order, with the weighted sum as their reward."""
        total = np.zeros(len(verdicts))
        parts: list[dict[str, float]] = [{} for _ in verdicts]
        for name, weight in self._weights.items():
            values = self._parts[name](questions, responses, verdicts)
            self._graded[name] += values.tolist()
            for of_one, value in zip(parts, np.nan_to_num(values).tolist(), strict=True):
                of_one[name] = value
            total += weight * np.nan_to_num(values)
        return [
            replace(verdict, reward=float(reward), parts=of_one)
            for verdict, reward, of_one in zip(verdicts, total, parts, strict=True)
        ]

    def take_means(self) -> dict[str, float]:
        """Return the mean of each part over the responses since the last call, by the part's name."""
        means = {name: float(np.nan_to_num(values).mean()) for name, values in self._graded.items() if values}
        self._graded = {name: [] for name in self._weights}
        return means

    def complete(self, report: StepReport) -> None:
        """Add a step's metrics and, as notices, the first faults of code.

        Raises:
            TrainingError: It is the first step, and all calls of a function failed.
        """
        silent = [name for name in self._codes if self._graded[name] and np.isnan(self._graded[name]).all()]
        report.metrics.update(self.take_metrics())
        for name, code in self._codes.items():
            new = list(code.faults.values())[self._num_noticed[name] :]
            self._num_noticed[name] += len(new)
            report.notices += [f"{fault}; that counts as 0, and the log has more." for fault in new]
        is_first, self._is_first_step = self._is_first_step, False
        if is_first and silent:
            fault = next(iter(self._codes[silent[0]].faults.values()))
            raise TrainingError(f"{fault}, in every call of the first step; correct it.", "data.rewards")

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each part over the responses since the last call, and how many of code's calls failed."""
        graded = {name: np.array(values) for name, values in self._graded.items() if values}
        failed = [np.isnan(values).mean() for name, values in graded.items() if name not in _PARTS]
        means = {f"reward/{self._curves[name]}": mean for name, mean in self.take_means().items()}
        return means | ({"reward/failed": float(np.mean(failed))} if failed else {})


def _reward_at_random(
    _questions: Sequence[Question], responses: Sequence[Response], _verdicts: Sequence[Verdict]
) -> Values:
    """Draw with a seed from all responses together: a resumed run draws the same, and none is told by its content."""
    seed = 0
    for response in responses:
        seed = crc32(response.token_ids.tobytes(), seed)
    return np.random.default_rng(seed).integers(0, 2, len(responses)).astype(np.float64)


def _reward_by_code(
    code: CodeReward, questions: Sequence[Question], responses: Sequence[Response], _verdicts: Sequence[Verdict]
) -> Values:
    calls = [
        (str(question.metadata.get("question") or question.prompt_text), question.answer, response.text)
        for question, response in zip(questions, responses, strict=True)
    ]
    return np.array(code.rewards(calls), dtype=np.float64)


_PARTS: dict[str, Part] = {
    ANSWER: lambda _questions, _responses, verdicts: np.array([verdict.reward for verdict in verdicts]),
    FORMAT: lambda _questions, _responses, verdicts: np.array(
        [float(verdict.outcome != Grade.UNPARSED) for verdict in verdicts]
    ),
    RANDOM: _reward_at_random,
}
