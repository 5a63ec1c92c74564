"""The three strategies of a replay method.

A strategy keeps no state: what it needs to know is in the columns, which are saved with the replay buffer. Its fields,
as a frozen dataclass, are settings: hyperparameters of the same name, or entries of `strategy_settings`. A run builds
each of its strategies once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw, TokenRatios
from exgrpo_core.types import Experience, Float32Array, Int64Array, RolloutGroup

if TYPE_CHECKING:
    import torch


class Collected(StrEnum):
    """Which fresh trajectories are stored."""

    SUCCESSES = "successes"
    """Correct ones, of continuous rewards those above their group's mean; equal ones once (the paper)."""
    VARIED_GROUPS = "varied_groups"
    """All of each group whose rewards differ."""
    EVERYTHING = "everything"


class OpenStep(Protocol):
    """A step whose groups are rolled out, for a method that adds to them."""

    @property
    def groups(self) -> list[RolloutGroup]:
        """The groups so far: those of fresh questions, then those of drawn ones."""

    @property
    def batch_size(self) -> int:
        """B."""

    @property
    def num_wanted(self) -> int:
        """floor(rho B)."""

    def roll_out_more(self, num_questions: int) -> None:
        """Add the groups of further fresh questions, K rollouts each, as many as there are."""

    def draw_replays(self, num_wanted: int, among: Int64Array | None = None) -> dict[int, float]:
        """Return questions that `draw` chooses, of `among` if given, with their weights; none before the start."""

    def replay_alone(self, question_index: int, weight: float) -> None:
        """Add a group of a question that has no rollouts: all its candidates are replayed."""


class QuestionSampler(ABC):
    """Which questions are replayed in a step, and how: as the paper does it, where a method says nothing else."""

    name: ClassVar[str]
    """What `question_selection` says."""
    draws_first: ClassVar[bool] = True
    """Whether questions are drawn before the rollouts, in the place of fresh ones; else `complete` draws."""
    replays_whole_groups: ClassVar[bool] = False
    """Whether a stored group is replayed as it was rolled out."""
    collected: ClassVar[Collected] = Collected.SUCCESSES
    is_even_within_buckets: ClassVar[bool] = False
    """Whether chance alone decides between questions of one bucket, so that drawn ones compare with undrawn ones."""

    @property
    def max_candidates(self) -> int | None:
        """Newest stored trajectories of a question that may be replayed; None for all."""
        return None

    @abstractmethod
    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return at most `num_questions` different questions of `questions.indices`; `rng` is all that is random."""

    def num_rollouts(self, rollouts_per_question: int, num_replays: int) -> int:
        """Return the rollouts of a drawn question beside what it replays: K-1 with the paper's one replay."""
        return rollouts_per_question - num_replays

    def complete(self, step: OpenStep) -> None:  # noqa: B027 # the paper adds nothing
        """Add what a method rolls out or replays beyond the paper's groups."""

    def candidates(self, stored: Sequence[Experience]) -> Sequence[Experience]:
        """Return which of a question's stored trajectories, oldest first, are scored."""
        return stored


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
