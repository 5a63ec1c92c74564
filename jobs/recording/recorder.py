"""A job's only way to write: what happened in a run, in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question
from jobs.runs.status import RunStatus


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One evaluation at `step` (0 is before training). `num_correct[i]` of `samples_per_question` for question i."""

    step: int
    question_set: str
    question_ids: Sequence[str]
    num_correct: Sequence[int]
    samples_per_question: int
    temperature: float
    seconds: float

    @property
    def avg_at_n(self) -> float:
        """Mean correctness over questions and samples, in [0, 1]."""
        return sum(self.num_correct) / (len(self.num_correct) * self.samples_per_question)


class RunRecorder(Protocol):
    """Writes one attempt of a run. Calls come in order from one thread.

    What a call recorded survives a kill -9; a step does so after a second or two, or once `settle` or any later call
    but `step` returned. What kept a step from being written is raised by a later call, and once.
    """

    def status(self, status: RunStatus, reason: str = "") -> None:
        """Record a change of state, with one sentence why where it is not the expected one."""
        ...

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record the questions of `training` or `held_out`, once a run; a second time changes nothing."""
        ...

    def step(self, report: StepReport) -> None:
        """Record one step whole: metrics, trajectories, selections, bucket counts and buffer changes.

        It may be written after this returned: the report and its arrays must not change any more.
        """
        ...

    def settle(self) -> None:
        """Return once every step is on disk: nobody may resume from a checkpoint after steps that are not recorded."""
        ...

    def evaluation(self, record: EvaluationRecord) -> None:
        """Record the scores of one evaluation."""
        ...

    def checkpoint(self, step: int, path: Path) -> None:
        """Record that a whole checkpoint is at `path`."""
        ...

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event that only jobs of another kind than training have."""
        ...

    def close(self) -> None:
        """Write out everything that is still held back."""
        ...
