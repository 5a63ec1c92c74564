"""The interface through which a job records what happened, in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question


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

    A returned call survives a kill -9; a `step` does so after a second or two, or once `settle` or any later call other
    than `step` returned. An error in writing a step is raised once, by a later call.
    """

    def status(self, status: str, reason: str = "") -> None:
        """Record a change of state, a `RunStatus`; `reason` is one sentence if it is not the expected one."""
        ...

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record the questions of `training`, `held_out` or a benchmark, once a run; a second call changes nothing.

        Raises:
            InputError: An earlier attempt recorded other prompts or gold answers.
        """
        ...

    def step(self, report: StepReport) -> None:
        """Record one step: metrics, trajectories, selections, bucket counts and buffer changes.

        It may be written after this returned: the report and its arrays must not change any more.
        """
        ...

    def settle(self) -> None:
        """Return once every step is on disk: a checkpoint must not be newer than the recorded steps."""
        ...

    def evaluation(self, record: EvaluationRecord) -> None:
        """Record the scores of one evaluation."""
        ...

    def checkpoint(self, step: int, path: Path) -> None:
        """Record that a whole checkpoint is at `path`."""
        ...

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event of another kind than those above."""
        ...

    def close(self) -> None:
        """Write everything and close."""
        ...
