"""Plain rows of failures: answers against reasoning, and wrong answers that an oracle reads again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OutcomeCell:
    """The trajectories of one answer and one verdict on their reasoning; entropies are NaN where none is recorded."""

    is_correct: bool
    is_valid: bool | None
    """None: without a verdict."""
    num_trajectories: int
    mean_entropy: float
    """Mean token entropy, nats."""
    entropy_deviation: float
    """Standard deviation over trajectories."""


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """A trajectory with a wrong answer, and the question that it answers."""

    trajectory_id: int
    step: int
    question_index: int
    prompt_text: str
    details: Mapping[str, Any]
    text: str
    mean_entropy: float | None
    correctness_rate: float | None
    """Share of correct rollouts beside it."""
