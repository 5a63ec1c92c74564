"""What the statistics ask of a trajectory, whatever it was read from."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Difficulty(StrEnum):
    """The paper's groups of questions by online correctness rate; it lists 75% twice, here that is medium."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


_EASY_ABOVE = 0.75
_HARD_UP_TO = 0.25


@dataclass(frozen=True, slots=True)
class TrajectoryFacts:
    """One fresh trajectory.

    `correctness_rate` is that of its group's fresh rollouts in the same step. `is_valid` is the verdict on its chain
    of thought, None where there is none. Entropy and log-prob are means over response tokens, in nats.
    """

    trajectory_id: int
    step: int
    question_index: int
    is_correct: bool
    correctness_rate: float
    is_valid: bool | None
    has_code: bool
    mean_entropy: float
    mean_log_prob: float

    @property
    def perplexity(self) -> float:
        """Exp of the mean negative log-likelihood (appendix, "Alternative Selection Metrics")."""
        return float(np.exp(-self.mean_log_prob))

    @property
    def difficulty(self) -> Difficulty | None:
        """The group of its question in its step; None where all or no rollouts were correct."""
        return difficulty_of(self.correctness_rate)


def difficulty_of(correctness_rate: float) -> Difficulty | None:
    """Return the paper's group for a rate: hard (0, 25%], medium (25%, 75%], easy (75%, 100%)."""
    if not 0.0 < correctness_rate < 1.0:
        return None
    if correctness_rate > _EASY_ABOVE:
        return Difficulty.EASY
    return Difficulty.HARD if correctness_rate <= _HARD_UP_TO else Difficulty.MEDIUM
