"""The parts of one run that a composition root builds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from exgrpo_core.engine import PolicyEngine
from exgrpo_core.types import Experience, Question
from jobs.grading.reward_function import Response, RewardFunction


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


@dataclass(frozen=True, slots=True)
class RunParts:
    """Engine, grader and data of one run."""

    engine: TrainingEngine
    reward: RewardFunction
    questions: Sequence[Question]
    held_out: Sequence[Question]
    external: dict[int, Experience]
