"""The recorder of every job: events as JSON lines, trajectories and questions as Parquet, all in the run directory."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from exgrpo_core.step_report import BucketCount, BufferEvent, Selection, StepReport
from exgrpo_core.types import Question, Trajectory
from jobs.recorder import EvaluationRecord
from jobs.run_directory import RunDirectory
from jobs.specs import RecordingSpec
from jobs.spool_writer import SpoolWriter
from jobs.status import RunStatus
from jobs.trajectory_file import questions_table, step_table, write_parquet

logger = logging.getLogger(__name__)

SAMPLED_ONE_IN = 16
"""`sampled` keeps the tokens of every trajectory whose id is a multiple of this."""

_KEEPS_TOKENS: dict[str, Callable[[Trajectory], bool]] = {
    "all": lambda _: True,
    "successes": lambda trajectory: trajectory.reward >= 1.0,
    "sampled": lambda trajectory: trajectory.trajectory_id % SAMPLED_ONE_IN == 0,
    "none": lambda _: False,
}


class SpoolRecorder:
    """Writes one attempt into its run directory; a file is on disk before the event that names it.

    A thread writes steps while their loop goes on.
    """

    def __init__(self, run: RunDirectory, attempt: int, retention: RecordingSpec) -> None:
        self._run = run
        self._attempt_path = run.attempt_path(attempt)
        self._keeps_tokens = _KEEPS_TOKENS[retention.token_data]
        self._writer = SpoolWriter(self._attempt_path, attempt)
        self._question_sets: set[str] = set()
        self._thread = ThreadPoolExecutor(1, "recorder")
        self._step_under_way: Future[None] | None = None

    def status(self, status: RunStatus, reason: str = "") -> None:
        """Record a change of state."""
        self.settle()
        self._writer.append("status", {"status": status.value, "reason": reason})

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record a question set; a later attempt refers to the file of the first."""
        self.settle()
        if question_set in self._question_sets:
            return
        name = f"questions-{question_set}.parquet"
        earlier = (self._run.attempt_path(attempt) / name for attempt in self._run.attempts())
        path = next((path for path in earlier if path.is_file()), None)
        if path is None:
            path = self._attempt_path / name
            write_parquet(questions_table(questions), path)
        self._writer.append("questions", {"question_set": question_set, "file": self._relative(path)})
        self._question_sets.add(question_set)

    def step(self, report: StepReport) -> None:
        """Record one step: its trajectories' file, if it has any, and then its event.

        Of a step with trajectories that comes twice the first record stays.
        """
        self.settle()
        self._step_under_way = self._thread.submit(self._write_step, report)

    def settle(self) -> None:
        """Return once every step is on disk."""
        if self._step_under_way is None:
            return
        wait([self._step_under_way])
        step, self._step_under_way = self._step_under_way, None
        step.result()

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
        """Record that a whole checkpoint stands at `path`."""
        self.settle()
        num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        self._writer.append("checkpoint", {"step": step, "path": self._relative(path), "num_bytes": num_bytes})

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event that only jobs of another kind than training have."""
        self.settle()
        self._writer.append(kind, dict(fields))

    def close(self) -> None:
        """Close the event file; nothing is held back."""
        try:
            self.settle()
        finally:
            self._writer.close()

    def _write_step(self, report: StepReport) -> None:
        path = self._attempt_path / "trajectories" / f"step-{report.step:08d}.parquet"
        if path.exists():
            logger.warning("step %d is recorded already; what is there stays.", report.step)
            return
        if report.groups:
            path.parent.mkdir(exist_ok=True)
            write_parquet(step_table(report.groups, self._keeps_tokens), path)
        fields = {
            "step": report.step,
            "is_started": report.is_started,
            "metrics": {key: float(value) for key, value in report.metrics.items()},
            "buckets": [_bucket_fields(bucket) for bucket in report.buckets],
            "selections": [_selection_fields(selection) for selection in report.selections],
            "buffer_events": [_change_fields(event) for event in report.buffer_events],
            "notices": report.notices,
            "file": self._relative(path) if report.groups else None,
        }
        self._writer.append("step", fields)

    def _relative(self, path: Path) -> str:
        return path.resolve().relative_to(self._run.path.resolve()).as_posix()


def _bucket_fields(bucket: BucketCount) -> list[float]:
    return [
        int(bucket.bucket),
        int(bucket.num_questions),
        float(bucket.probability),
        int(bucket.num_drawn),
        int(bucket.deficit),
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
        "born_steps": selection.born_steps.tolist(),
        "num_tokens": selection.num_tokens.tolist(),
        "entropies": selection.entropies.tolist(),
        "nlls": selection.nlls.tolist(),
        "scores": selection.scores.tolist(),
        "chosen": int(selection.chosen),
    }
