"""The recorder of every job of the workbench: it writes one attempt into its run directory, or raises."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol

from exgrpo_core.errors import InputError
from exgrpo_core.recording.attempt_gate import exit_if_fenced
from exgrpo_core.recording.lines import encode_line, parse_lines
from exgrpo_core.recording.record_file import RecordFile, read_members, record_path
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.report_lines import question_fields, step_lines, token_lines
from exgrpo_core.recording.run_folder import RunFolder
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question, Trajectory

logger = logging.getLogger(__name__)

WRITE_EVERY_SECONDS = 1.0
"""Steps that come faster are written together at this interval: to sync costs the same for one step or many."""
MAX_WAITING = 16
"""At most this many steps wait to be written together."""
SAMPLED_ONE_IN = 16
"""`sampled` keeps the tokens of every trajectory whose id is a multiple of this."""

_KEEPS_TOKENS: dict[str, Callable[[Trajectory], bool]] = {
    "all": lambda _: True,
    "successes": lambda trajectory: trajectory.reward >= 1.0,
    "sampled": lambda trajectory: trajectory.trajectory_id % SAMPLED_ONE_IN == 0,
    "none": lambda _: False,
}


class Retention(Protocol):
    """Which per-token values are kept."""

    @property
    def token_data(self) -> str:
        """`all`, `successes`, `sampled` or `none`."""
        ...


class FileRecorder:
    """Writes one attempt; what is recorded is on disk, and a call of an attempt that may not write ends the process.

    A thread writes steps while training continues; steps that come fast are written together.
    """

    def __init__(self, run: RunFolder, attempt: int, retention: Retention) -> None:
        self._run = run
        self._attempt_path = run.attempt_path(attempt)
        self._keeps_tokens = _KEEPS_TOKENS[retention.token_data]
        self._keeps_seen = retention.token_data == "all"
        path = record_path(self._attempt_path)
        if path.exists():
            raise FileExistsError(f"{path}: exists already; claim a new attempt to write.")
        self._file = RecordFile(path)
        self._question_sets: set[str] = set()
        self._steps_with_trajectories: set[int] = set()
        self._thread = ThreadPoolExecutor(1, "recorder")
        self._write_again_at = 0.0
        self._is_urgent = Event()
        self._lock = Lock()
        self._waiting: list[tuple[datetime, StepReport]] = []
        self._writing: Future[None] | None = None
        self._failed: Future[None] | None = None

    def status(self, status: str, reason: str = "") -> None:
        """Record a change of state."""
        self.settle()
        self._append("status", {"status": str(status), "reason": reason})

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record a question set; a later attempt compares it with that of the first.

        Raises:
            InputError: That one has other prompts or gold answers.
        """
        self.settle()
        if question_set in self._question_sets:
            return
        given = question_fields(questions)
        recorded = self._recorded_questions(question_set)
        if recorded is None:
            self._append("questions", {"question_set": question_set, "questions": given})
        else:
            _refuse_changes([*map(_content, recorded)], [*map(_content, given)], question_set)
        self._question_sets.add(question_set)

    def step(self, report: StepReport) -> None:
        """Record one step.

        If a step with trajectories is recorded twice, the first record remains.
        """
        if len(self._waiting) >= MAX_WAITING:
            self.settle()
        self._raise_failure()
        if not self._keeps_seen:  # without those of all rollouts nothing can be computed from them
            report = replace(report, mini_batches=[])
        with self._lock:
            self._waiting.append((datetime.now(UTC), report))
        self._start_writing()

    def settle(self) -> None:
        """Return once every step is on disk."""
        self._is_urgent.set()
        try:
            while writing := self._start_writing():
                wait([writing])
        finally:
            self._is_urgent.clear()
        self._raise_failure()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Record the scores of one evaluation."""
        self.settle()
        fields = {
            "step": record.step,
            "question_set": record.question_set,
            "question_ids": list(record.question_ids),
            "num_correct": [int(count) for count in record.num_correct],
            "samples_per_question": record.samples_per_question,
            "temperature": record.temperature,
            "seconds": record.seconds,
        }
        self._append("evaluation", fields)

    def checkpoint(self, step: int, path: Path) -> None:
        """Record that a whole checkpoint is at `path`."""
        self.settle()
        num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        self._append("checkpoint", {"step": step, "path": self._relative(path), "num_bytes": num_bytes})

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event of another kind than those above."""
        self.settle()
        self._append(kind, fields)

    def close(self) -> None:
        """Write everything and close the file."""
        try:
            self.settle()
        finally:
            self._file.close()

    def _start_writing(self) -> Future[None] | None:
        """Return the future that writes waiting steps, None if there are none."""
        with self._lock:
            if self._writing is None and self._waiting:
                self._writing = self._thread.submit(self._write_waiting)
            return self._writing

    def _write_waiting(self) -> None:
        while steps := self._next_steps():
            try:
                self._write_steps(steps)
            except BaseException:
                with self._lock:
                    self._failed, self._writing = self._writing, None
                raise
            self._write_again_at = time.monotonic() + WRITE_EVERY_SECONDS

    def _next_steps(self) -> list[tuple[datetime, StepReport]]:
        """Wait until steps may be written, and return all waiting ones; if there are none, end this writing."""
        self._is_urgent.wait(max(0.0, self._write_again_at - time.monotonic()))
        with self._lock:
            steps, self._waiting = self._waiting, []
            if not steps:
                self._writing = None
            return steps

    def _raise_failure(self) -> None:
        with self._lock:
            failed, self._failed = self._failed, None
        if failed is not None:
            failed.result()

    def _append(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._write([encode_line(kind, {"at": _text(datetime.now(UTC)), **fields})])

    def _write(self, lines: Iterable[bytes], values: Iterable[bytes] = ()) -> None:
        exit_if_fenced()
        self._file.append(lines, values)
        self._file.sync()

    def _write_steps(self, steps: Sequence[tuple[datetime, StepReport]]) -> None:
        new = self._new_steps(steps)
        if new:
            lines = chain.from_iterable(step_lines(_text(at), report) for at, report in new)
            self._write(lines, chain.from_iterable(token_lines(report, self._keeps_tokens) for _, report in new))
        self._steps_with_trajectories.update(report.step for _, report in new if report.groups)

    def _new_steps(self, steps: Sequence[tuple[datetime, StepReport]]) -> list[tuple[datetime, StepReport]]:
        new = []
        seen = set(self._steps_with_trajectories)
        for at, report in steps:
            if report.step in seen:
                logger.warning("step %d is recorded already; the first record remains.", report.step)
                continue
            new.append((at, report))
            if report.groups:
                seen.add(report.step)
        return new

    def _recorded_questions(self, question_set: str) -> list[dict[str, Any]] | None:
        """Return the questions that an earlier attempt recorded before its first step, None without any."""
        for attempt in self._run.attempts():
            path = record_path(self._run.attempt_path(attempt))
            for member in read_members(path, 0, {"questions", "step"}) if path.exists() else ():
                lines = parse_lines(member.lines())
                if lines and lines[0]["kind"] == "step":
                    break
                for line in lines:
                    if line["kind"] == "questions" and line["question_set"] == question_set:
                        return list(line["questions"])
        return None

    def _relative(self, path: Path) -> str:
        return path.resolve().relative_to(self._run.path.resolve()).as_posix()


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _refuse_changes(recorded: list[tuple[str, str]], given: list[tuple[str, str]], question_set: str) -> None:
    """Refuse other questions than those of an earlier attempt."""
    if given == recorded:
        return
    before, after = Counter(recorded), Counter(given)
    num_changed = max((before - after).total(), (after - before).total())
    what = f"{num_changed:,} of {len(recorded):,} questions have" if num_changed else "the questions have"
    how = "another prompt or gold answer" if num_changed else "another order"
    raise InputError(
        f"data: {what} {how} in the set {question_set!r} than when the run began; resume it with the data and the "
        "model of then, or start a new run."
    )


def _content(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["prompt_text"], row["answer"]
