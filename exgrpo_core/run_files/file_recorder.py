"""The recorder of every job: events as JSON lines, trajectories and questions as Parquet, all in the run directory."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol

from exgrpo_core.bounded_json import UnreadableFileError, file_crc
from exgrpo_core.errors import InputError
from exgrpo_core.run_files.event_codec import EventWriter
from exgrpo_core.run_files.recorder import EvaluationRecord
from exgrpo_core.run_files.run_folder import RunFolder
from exgrpo_core.run_files.trajectory_file import (
    FILE_PREFIX,
    questions_table,
    read_questions,
    trajectory_table,
    write_parquet,
)
from exgrpo_core.step_report import BucketCount, BufferEvent, Selection, StepReport
from exgrpo_core.types import Question, Trajectory

logger = logging.getLogger(__name__)

WRITE_EVERY_SECONDS = 1.0
"""Steps that come faster are written together at this interval: one file costs much the same for one step or many."""
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
    """Writes one attempt into its run directory; a file is on disk before the event that names it.

    A step's changes of the replay buffer are on disk before its event too: what is recorded is not lost by a crash.

    A thread writes steps while training continues; steps that come fast are written together.
    """

    def __init__(self, run: RunFolder, attempt: int, retention: Retention) -> None:
        self._run = run
        self._attempt_path = run.attempt_path(attempt)
        self._keeps_tokens = _KEEPS_TOKENS[retention.token_data]
        self._writer = EventWriter(self._attempt_path, attempt)
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
        self._writer.append("status", {"status": str(status), "reason": reason})

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record a question set; a later attempt refers to the file of the first.

        Raises:
            InputError: That file has other prompts or gold answers.
        """
        self.settle()
        if question_set in self._question_sets:
            return
        name = f"questions-{question_set}.parquet"
        earlier = (self._run.attempt_path(attempt) / name for attempt in self._run.attempts())
        path = next((path for path in earlier if path.is_file()), None)
        if path is None:
            path = self._attempt_path / name
            crc = write_parquet(questions_table(questions), path)
        else:
            _refuse_changes(path, questions, question_set)
            crc = file_crc(path)
        fields = {"question_set": question_set, "file": self._relative(path), "file_crc": crc}
        self._writer.append("questions", fields)
        self._question_sets.add(question_set)

    def step(self, report: StepReport) -> None:
        """Record one step: its trajectories' file, if it has any, and then its event.

        If a step with trajectories is recorded twice, the first record remains.
        """
        if len(self._waiting) >= MAX_WAITING:
            self.settle()
        self._raise_failure()
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
        self._writer.append("evaluation", fields)

    def checkpoint(self, step: int, path: Path) -> None:
        """Record that a whole checkpoint is at `path`."""
        self.settle()
        num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        self._writer.append("checkpoint", {"step": step, "path": self._relative(path), "num_bytes": num_bytes})

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event of another kind than those above."""
        self.settle()
        self._writer.append(kind, dict(fields))

    def close(self) -> None:
        """Write everything and close the event file."""
        try:
            self.settle()
        finally:
            self._writer.close()

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

    def _write_steps(self, steps: Sequence[tuple[datetime, StepReport]]) -> None:
        new = self._new_steps(steps)
        with_trajectories = [(report.step, report.groups) for _, report in new if report.groups]
        file: dict[str, Any] = {"file": None}
        if with_trajectories:
            path = self._attempt_path / "trajectories" / f"{FILE_PREFIX}{with_trajectories[0][0]:08d}.parquet"
            path.parent.mkdir(exist_ok=True)
            crc = write_parquet(trajectory_table(with_trajectories, self._keeps_tokens), path)
            file = {"file": self._relative(path), "file_crc": crc}
        events = [(at, _step_fields(report) | (file if report.groups else {"file": None})) for at, report in new]
        self._writer.append_all("step", events)
        self._steps_with_trajectories.update(step for step, _ in with_trajectories)

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

    def _relative(self, path: Path) -> str:
        return path.resolve().relative_to(self._run.path.resolve()).as_posix()


def _refuse_changes(path: Path, questions: Sequence[Question], question_set: str) -> None:
    """Refuse other questions than those of an earlier attempt; a damaged file, which `verify` names, compares none."""
    try:
        recorded = [_content(row) for row in read_questions(path)["questions"]]
    except UnreadableFileError as error:
        logger.warning("%s", error)
        return
    # As it would be read back: texts are stored in UTF-8.
    given = [_content(row) for row in questions_table(questions).to_pylist()]
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


def _step_fields(report: StepReport) -> dict[str, Any]:
    return {
        "step": report.step,
        "is_replay_open": report.is_replay_open,
        "metrics": {key: float(value) for key, value in report.metrics.items()},
        "buckets": [_bucket_fields(bucket) for bucket in report.buckets],
        "selections": [_selection_fields(selection) for selection in report.selections],
        "buffer_events": [_change_fields(event) for event in report.buffer_events],
        "notices": report.notices,
    }


def _bucket_fields(bucket: BucketCount) -> list[float]:
    return [
        int(bucket.bucket),
        int(bucket.num_questions),
        float(bucket.probability),
        int(bucket.num_drawn),
        int(bucket.overflow),
    ]


def _change_fields(event: BufferEvent) -> list[Any]:
    trajectory_id = None if event.trajectory_id is None else int(event.trajectory_id)
    buckets = [None if bucket is None else int(bucket) for bucket in (event.bucket_from, event.bucket_to)]
    return [event.kind.value, int(event.question_index), trajectory_id, *buckets]


def _selection_fields(selection: Selection) -> dict[str, Any]:
    return {
        "question_index": int(selection.question_index),
        "bucket": int(selection.bucket),
        "trajectory_ids": selection.trajectory_ids.tolist(),
        "rollout_steps": selection.rollout_steps.tolist(),
        "num_tokens": selection.num_tokens.tolist(),
        "entropies": selection.entropies.tolist(),
        "nlls": selection.nlls.tolist(),
        "scores": selection.scores.tolist(),
        "chosen": list(selection.chosen),
    }
