"""The components of one run that a composition root builds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from exgrpo_core.engine import PolicyEngine
from exgrpo_core.types import Experience, Question
from jobs.grading.reward_function import Response, RewardFunction
from jobs.recording.recorder import RunRecorder
from jobs.specs.train import TrainSpec
from jobs.training.templates import PromptTokenizer


class TrainingEngine(PolicyEngine, Protocol):
    """A policy engine that also evaluates, saves and restores."""

    def generate_for_evaluation(
        self, questions: Sequence[Question], num_samples: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Response]]:
        """Return `num_samples` responses a question, without changing the state of the training sampler."""
        ...

    def save(self, directory: Path) -> None:
        """Write model, optimizer and sampler into `directory`."""
        ...

    def restore(self, directory: Path) -> None:
        """Continue exactly as the engine that was saved there."""
        ...


BenchmarkReader = Callable[[TrainSpec, PromptTokenizer], dict[str, list[Question]]]
"""Returns the questions of the benchmarks that a specification validates on, as its model is asked them."""


def no_benchmarks(_spec: TrainSpec, _tokenizer: PromptTokenizer) -> dict[str, list[Question]]:
    """Return no benchmarks, as runs validate that name none."""
    return {}


@dataclass(frozen=True, slots=True)
class RunComponents:
    """Engine, grader and data of one run."""

    engine: TrainingEngine
    reward: RewardFunction
    questions: Sequence[Question]
    held_out: Sequence[Question]
    external: dict[int, Experience]
    benchmarks: Mapping[str, Sequence[Question]] = field(default_factory=dict)
    """Questions of benchmarks that are scored during training, by the benchmark's name."""
    take_reward_metrics: Callable[[], dict[str, float]] = dict
    """Returns the means of the parts of the reward since the last call; none where it is the answer's alone."""

    def record_start(self, recorder: RunRecorder) -> None:
        """Record the questions that the run begins with."""
        recorder.questions(self.questions, "training")
        recorder.questions(self.held_out, "held_out")
