"""The recorder of a loop: what it is given is appended to a run folder at once, by the loop's own thread."""

import atexit
import contextlib
import itertools
import logging
import math
import os
import reprlib
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError, read_json
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import first_line
from exgrpo_core.recording.given import as_trajectory, fact
from exgrpo_core.recording.lines import as_number, as_plain, encode_line, trajectory_lines
from exgrpo_core.recording.record_file import RecordFile, record_path
from exgrpo_core.recording.run_attempt import Attempt
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.recording.wandb_names import Config, Table

logger = logging.getLogger(__name__)

MAX_STEP = 2**31 - 1
_ENDS = (RunStatus.FINISHED, RunStatus.FAILED, RunStatus.STOPPED)
_MAX_REASON = 1000
_MAX_NAMED = 20
"""Metrics that are no numbers and named in the log."""
_BEGIN_OF_TRAJECTORY = b'{"kind":"trajectory"'
NOT_FINISHED = "Its program ended without finish()."


class Run:
    """Records one run. After the start no call raises: what cannot be written is reported once, counted and left out.

    What a call is given is appended at once, so forks may record too, into the same file. It survives a kill of the
    program once the call returned, and a crash of the machine once `flush` did.
    """

    def __init__(self, attempt: Attempt) -> None:
        """Open the file of this process's rank in an attempt.

        Raises:
            OSError: It cannot be opened.
        """
        self._attempt = attempt
        self._file = RecordFile(record_path(attempt.path, attempt.rank, attempt.num_ranks))
        self._writer = threading.Lock()
        self._pid = os.getpid()
        self._step = 0
        self._numbers = itertools.count(1)
        self._num_lost = 0
        self._num_lost_trajectories = 0
        self._why = ""
        self._no_numbers: set[str] = set()
        self._is_over = False
        self.summary = Config({}, self._summarize)
        """As in W&B: the newest value of each metric; a number that is set here is recorded as a metric."""
        _open_runs.add(self)
        atexit.register(self._end_at_exit)

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._attempt.path.parents[1]

    @property
    def run_id(self) -> str:
        """The run folder's name."""
        return self.path.name

    id = run_id
    """As W&B calls it."""

    @property
    def name(self) -> str:
        """What people call the run; a name that is set later is not recorded."""
        return str(self._started_with.get("name") or self.run_id)

    @name.setter
    def name(self, name: str) -> None:
        logger.warning("%s: name: %r has no effect; give the name when the run starts.", self.path, name)

    @cached_property
    def _started_with(self) -> dict[str, Any]:
        try:
            return read_json(self.path / "spec.json")
        except (OSError, UnreadableFileError):
            return {}

    @cached_property
    def config(self) -> Config:
        """The settings that the run started with; those set here are recorded."""
        return Config(self._started_with.get("config") or {}, self._configure)

    def _configure(self, changed: Mapping[str, Any]) -> None:
        if not self._is_over:
            self._append([self._line("config", self._step, {"config": as_plain(changed)})])

    def _summarize(self, changed: Mapping[str, Any]) -> None:
        self.log(self._step, changed)

    def stay_in_step(self) -> None:
        """Let the next call of `log` that names no step belong to the newest step."""
        self._step = max(0, self._step - 1)

    @property
    def num_lost(self) -> int:
        """How many lines could not be written so far and are not yet counted in the file."""
        return self._num_lost

    @property
    def why_lost(self) -> str:
        """Why the newest of them could not be written."""
        return self._why

    def log(
        self,
        first: int | Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        trajectories: Iterable[object] | None = None,
        *,
        step: int | None = None,
    ) -> list[str]:
        """Record metrics and trajectories of a step and return an id of each, for `annotate`, "" of one that is lost.

        Args:
            first: The step, by default the next one; or, as W&B has it, the metrics.
            metrics: Numbers by name; mappings in it become names such as `reward/format`, the rows of a `Table`
                trajectories. Others are left out.
            trajectories: Texts, mappings or `RecordedTrajectory`s, as `as_trajectory` takes them.
            step: The step, where it is not first.
        """
        if self._is_over:
            return []
        try:
            given = first if isinstance(first, Mapping) else metrics
            number = first if step is None and not isinstance(first, Mapping) else step
            return self._log(number, given or {}, () if trajectories is None else trajectories)
        except Exception as error:  # noqa: BLE001 - whatever a loop hands over must not end it
            self._lose(1, 0, error)
            return []

    def annotate(self, step: int, trajectory_id: str, **facts: Any) -> None:  # noqa: ANN401 - any fact
        """Record what is learned later of a trajectory: `reward`, `verdict`, `is_valid`, `advantage`, or a column."""
        if self._is_over:
            return
        try:
            known = {name: fact(name, value) for name, value in facts.items() if value is not None}
            self._append([self._line("annotation", as_step(step), {"id": trajectory_id, "facts": known})])
        except Exception as error:  # noqa: BLE001 - likewise
            self._lose(1, 0, error)

    def note_left_out(self, num_lines: int, reason: str) -> None:
        """Record that so many lines of what is recorded here are left out, and why."""
        counts = {"num_lines": num_lines, "num_trajectories": num_lines, "reason": reason}
        self._append([self._line("lost", self._step, counts)])

    def flush(self) -> None:
        """Return once everything that could be written is on disk."""
        with contextlib.suppress(OSError):
            if not self._is_over:
                self._file.sync()

    def finish(self, status: str = "finished", reason: str = "") -> None:
        """End the run: `finished`, `failed` or `stopped`; nothing more is recorded, and a fork cannot end it.

        Anything else is recorded as `stopped`, with it as the reason: a training loop ends with no error of its record.
        """
        if self._is_over or os.getpid() != self._pid:
            return
        reason = reason[:_MAX_REASON] if isinstance(reason, str) else ""
        if not isinstance(status, str) or status not in _ENDS:
            given = repr(status[:60]) if isinstance(status, str) else type(status).__name__
            logger.warning("%s: status: expected %s, got %s.", self.path, " or ".join(_ENDS), given)
            status, reason = RunStatus.STOPPED, f"Its loop ended it as {given}. {reason}".strip()
        atexit.unregister(self._end_at_exit)
        if self._num_lost:
            self._append([])
        self.flush()
        self._is_over = True
        try:
            self._attempt.end(status, reason)
        except OSError as error:
            logger.warning("%s: how the run ended is not recorded: %s.", self.path, explain(error))
        with self._writer:
            self._file.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.finish(RunStatus.FAILED, f"{type(error).__name__}: {first_line(error)}")

    def _end_at_exit(self) -> None:
        # Python keeps here what ended the program; a session that takes commands also keeps errors that it survived.
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        if isinstance(error, Exception):
            self.__exit__(type(error), error, None)
        else:
            self.finish(RunStatus.STOPPED, NOT_FINISHED)

    def _log(self, step: int | None, metrics: Mapping[str, Any], trajectories: Iterable[object]) -> list[str]:
        number = self._step + 1 if step is None else as_step(step)
        self._step = number
        if not hasattr(metrics, "items"):
            self._lose(1, 0, TypeError(f"metrics: expected numbers by name, got a {type(metrics).__name__}"))
            metrics = {}
        tables = [value for _, value in metrics.items() if isinstance(value, Table)]
        metrics = {name: value for name, value in metrics.items() if not isinstance(value, Table)}
        numbers = {name: value for name, given in flat(metrics) if (value := self._number(name, given)) is not None}
        self.summary.take(numbers)
        lines = [self._line("metrics", number, {"metrics": numbers})] if numbers else []
        values: list[bytes] = []
        ids = []
        try:
            if isinstance(trajectories, str | bytes | Mapping) or not isinstance(trajectories, Iterable):
                kind = type(trajectories).__name__
                raise TypeError(f"trajectories: expected a list of trajectories, got a {kind}; write it in brackets")
            for given in itertools.chain(trajectories, *(table.take_rows() for table in tables)):
                name = f"{self._attempt.rank}.{os.getpid():x}.{next(self._numbers)}"
                ids.append(name if self._add((lines, values), number, name, given) else "")
        except Exception as error:  # noqa: BLE001 - an iterator of the loop's that fails: the first ones are recorded
            self._lose(1, 1, error)
        self._append(lines, values)
        return ids

    def _number(self, name: str, given: object) -> float | None:
        """Return a metric's value, None of one that has none; one that is no number is named the first time."""
        number = as_number(given)
        if number is None and given is not None and name not in self._no_numbers and len(self._no_numbers) < _MAX_NAMED:
            self._no_numbers.add(name)
            kind = "whole number of hundreds of digits" if isinstance(given, int) else type(given).__name__
            logger.warning("%s: metrics: %r is left out: expected a number, got a %s.", self.path, name, kind)
        return number

    def _add(self, texts: tuple[list[bytes], list[bytes]], step: int, name: str, given: object) -> bool:
        try:
            line, tokens = trajectory_lines(step, name, _now(), as_trajectory(given))
        except Exception as error:  # noqa: BLE001 - the others of the step are recorded
            self._lose(1, 1, error)
            return False
        texts[0].append(line)
        texts[1].extend([tokens] if tokens else [])
        return True

    def _line(self, kind: str, step: int, fields: Mapping[str, Any]) -> bytes:
        return encode_line(kind, {"step": step, "at": _now(), **fields})

    def _append(self, lines: list[bytes], values: Sequence[bytes] = ()) -> None:
        with self._writer:
            lost = []
            if self._num_lost:
                counts = {"num_lines": self._num_lost, "num_trajectories": self._num_lost_trajectories}
                lost = [self._line("lost", self._step, counts | {"reason": self._why})]
            if not lost and not lines:
                return
            try:
                self._file.append([*lost, *lines], values)
            except OSError as error:
                self._lose(len(lines), sum(line.startswith(_BEGIN_OF_TRAJECTORY) for line in lines), error)
            else:
                self._num_lost = self._num_lost_trajectories = 0

    def _lose(self, num_lines: int, num_trajectories: int, error: Exception) -> None:
        """Count lines that are not recorded, and say why the first time."""
        why = explain(error) if isinstance(error, OSError) else first_line(error).rstrip(".")
        if not isinstance(error, OSError | TypeError | ValueError):  # an error of the loop's: its type says what it is
            why = f"{type(error).__name__}: {why}"
        if not self._why:
            logger.warning("%s: not all is recorded: %s. What is left out is counted in the file.", self.path, why)
        self._why = why
        self._num_lost += num_lines
        self._num_lost_trajectories += num_trajectories

    def _in_fork(self) -> None:
        """Leave the lock of the run to the parent, and take no lock that one of its threads held."""
        self._writer = threading.Lock()
        self._attempt.release()


def as_step(value: Any, name: str = "step") -> int:  # noqa: ANN401 - whatever a program gives
    """Return the number of a step, which programs also write as `3.0` and as a text.

    Raises:
        ValueError: It is no whole number of 0 to `MAX_STEP`.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= MAX_STEP or not number.is_integer():
        raise ValueError(f"{name}: expected a whole number of 0 to {MAX_STEP:,}, got {reprlib.repr(value)}.")
    return int(number)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def flat(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the names and values of metrics, of a mapping as `train/loss`."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


_open_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for run in _open_runs:
        run._in_fork()


os.register_at_fork(after_in_child=_leave_to_parent)
