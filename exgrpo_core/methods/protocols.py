"""The three parts of a replay method.

A part keeps no state: what it needs to know is in the columns, which are saved with the replay buffer. Its fields, as a
frozen dataclass, are settings: hyperparameters of the same name, or entries of `strategy_settings`.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw, TokenRatios
from exgrpo_core.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch


class QuestionSampler(ABC):
    """Which questions are replayed in a step."""

    name: ClassVar[str]
    """What `question_selection` says."""

    @abstractmethod
    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return at most `num_questions` different questions of `questions.indices`; `rng` is all that is random."""


class TrajectorySelector(ABC):
    """Which stored trajectories of a question are replayed."""

    name: ClassVar[str]
    """What `trajectory_selection` says."""

    @abstractmethod
    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return a number a candidate (N,): the lowest are replayed, the oldest first among equals."""

    def choose(
        self, candidates: CandidateColumns, num_wanted: int, rng: np.random.Generator
    ) -> tuple[Int64Array, Float32Array]:
        """Return the positions of `num_wanted` candidates of one question, and the scores (N,), NaN if there are none.

        Raises:
            ValueError: A score is not a number.
        """
        del rng
        scores = self.score(candidates)
        if np.isnan(scores).any():
            raise ValueError(f"candidates: {self.name} is not a number for one; check the engine's log-probs.")
        if num_wanted == 1:
            return np.array([scores.argmin()]), scores
        return np.argsort(scores, kind="stable")[:num_wanted], scores


class OffPolicyCorrection(ABC):
    """How much a token counts whose behavior policy is not the policy that is trained."""

    name: ClassVar[str]
    """What `off_policy_correction` says."""

    @abstractmethod
    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return a factor of each token's advantage, of the tokens' shape; the loss differentiates through it."""
