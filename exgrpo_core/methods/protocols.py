"""The three parts of a replay method.

A part keeps no state: what it needs to know is in the columns, which are saved with the replay buffer. Its fields, as a
frozen dataclass, are settings: hyperparameters of the same name, or entries of `strategy_settings`.
"""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw, TokenRatios
from exgrpo_core.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch


class Placement(StrEnum):
    """Where replayed trajectories go."""

    REPLACE = "replace"
    """In the place of `replays_per_group` of a drawn question's K rollouts (the paper)."""
    ADD = "add"
    """Beside the K rollouts of fresh questions, with a baseline of their own: each part's advantages sum to 0."""
    GROUP = "group"
    """A drawn question's newest stored group as a whole, without rollouts."""
    EQUAL_REWARDS = "equal_rewards"
    """As `group`, in the place of fresh groups whose rewards are all equal, which have no gradient."""

    @property
    def is_whole_group(self) -> bool:
        """Whether a stored group is replayed as it was rolled out."""
        return self in (Placement.GROUP, Placement.EQUAL_REWARDS)


class Collected(StrEnum):
    """Which fresh trajectories are stored."""

    SUCCESSES = "successes"
    """Correct ones, of continuous rewards those above their group's mean; equal ones once (the paper)."""
    VARIED_GROUPS = "varied_groups"
    """All of each group whose rewards differ."""
    EVERYTHING = "everything"


class QuestionSampler(ABC):
    """Which questions are replayed in a step, and where what is replayed goes."""

    name: ClassVar[str]
    """What `question_selection` says."""
    placement: ClassVar[Placement] = Placement.REPLACE
    collected: ClassVar[Collected] = Collected.SUCCESSES
    is_even_within_buckets: ClassVar[bool] = False
    """Whether chance alone decides between questions of one bucket, so that drawn ones compare with undrawn ones."""

    @property
    def max_candidates(self) -> int | None:
        """Newest stored trajectories of a question that may be replayed; None for all."""
        return None

    @property
    def num_refills(self) -> int:
        """Rounds of further rollouts, at most, that fill the places of fresh groups whose rewards are all equal."""
        return 0

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
