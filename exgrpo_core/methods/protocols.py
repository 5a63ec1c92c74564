"""The three parts of a replay method.

A `ReplayMethod` plans a step and says what is stored, a `TrajectorySelector` chooses between stored trajectories, an
`OffPolicyCorrection` weighs tokens. A part keeps no state: what it needs to know is in the columns of
`columns.py`. Its fields, as a frozen dataclass, are settings: hyperparameters of the same name, or entries of
`strategy_settings`. A run builds each of its parts once. No torch is loaded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from exgrpo_core.errors import Mistake
from exgrpo_core.methods.about import Part
from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw, StoredTrajectories
from exgrpo_core.types import (
    Float32Array,
    Float64Array,
    GroupPlan,
    Int64Array,
    RolloutGroup,
    TokenRatios,
    Trajectory,
)

if TYPE_CHECKING:
    import torch


Draw = Callable[[QuestionColumns, int, np.random.Generator], QuestionDraw]
"""Chooses at most so many different questions; the generator is all that is random."""


class OpenStep(Protocol):
    """A step that a method plans: what it has so far, and the plans that a method can ask for."""

    groups: list[RolloutGroup]
    """The groups of the rounds so far, without those whose rollouts failed."""
    batch_size: int
    """B."""
    rollouts_per_question: int
    """K."""
    replays_per_group: int
    """Most stored trajectories that a group replays: 1 in the paper."""
    num_wanted: int
    """floor(rho B)."""

    def draw(
        self, draw: Draw, num_questions: int, among: Iterable[int] | None = None, *, with_unsolved: bool = False
    ) -> dict[int, float]:
        """Return questions to replay with their weights: of `among` if given, else of buckets 1..K.

        `with_unsolved` adds those of bucket 0 to the latter: solved 0 of K last time, with something stored.
        There are none in a run that replays nothing, or before the delayed start. Questions of `groups` are drawn too:
        a later round that plans rollouts leaves them out.
        """

    def stored(self, question_index: int) -> StoredTrajectories:
        """Return what is stored of a question."""

    def fresh(self, num_questions: int, drawn: Collection[int] = ()) -> list[GroupPlan]:
        """Plan K rollouts each of so many fresh questions: none that the step has, none of `drawn`.

        What the step has are its groups and what earlier calls returned. A question with a trajectory from a file gets
        K - 1 rollouts and replays that. Retired questions come as configured, and in a step of a review some of the
        first call's are reviewed ones. There are fewer if the data set has no more.
        """


class ReplayMethod(Part, ABC):
    """What a step consists of, and what is stored of it."""

    keeps_duplicates: ClassVar[bool] = False
    """Whether a trajectory is stored again whose tokens its question has already."""
    num_past_groups: ClassVar[int] = 0
    """How many newest k of each question are kept, for `past_correct` and `most_correct`: 2 bytes each."""

    @abstractmethod
    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield the groups of a step: one round, or more that depend on the groups of the rounds before.

        A round's rollouts are generated together. The next round sees them in `step.groups`. With `rollouts_ahead` the
        first round is planned one step before.
        """

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory] | None:
        """Return which fresh trajectories of a group are stored; None also leaves its question in its bucket.

        `successes` are the correct ones, of continuous rewards those above their group's mean: the paper's choice.
        """
        del group
        return successes


class QuestionSampler(ReplayMethod):
    """The paper's step with another choice of questions."""

    @abstractmethod
    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return at most `num_questions` different questions of `questions.indices`; `rng` is all that is random."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield K rollouts of each fresh question and, of each drawn one, K - r next to r stored trajectories.

        These are lines 4 to 8, 17 and 23 of Algorithm 1, where r is 1.
        """
        drawn = []
        for index, weight in step.draw(self.draw, step.num_wanted).items():
            rows = step.stored(index).rows
            num_rollouts = step.rollouts_per_question - min(step.replays_per_group, rows.size)
            drawn.append(GroupPlan(index, num_rollouts, rows, step.replays_per_group, weight))
        fresh = step.fresh(step.batch_size - len(drawn), [group.question_index for group in drawn])
        yield fresh + drawn

    def find_mistakes(self, settings: object) -> Iterator[Mistake]:
        """Yield a sentence where r stored trajectories leave no rollout of K, or are more than the candidates."""
        if not getattr(settings, "experience_ratio", 0.0):
            return
        num_replays = getattr(settings, "replays_per_group", 1)
        num_rollouts = getattr(settings, "rollouts_per_question", num_replays + 1)
        budget = getattr(settings, "candidate_budget", None)
        if num_replays >= num_rollouts:
            reason = f"{self.name} replays them in the place of some of {num_rollouts} rollouts"
            yield Mistake(f"expected less than {num_rollouts}, since {reason}, got {num_replays}.", "replays_per_group")
        if budget is not None and budget < num_replays:
            reason = f"a group replays {num_replays} of its candidates (replays_per_group)"
            yield Mistake(f"expected at least {num_replays} or null, since {reason}, got {budget}.", "candidate_budget")


class TrajectorySelector(Part, ABC):
    """Which stored trajectories of a question are replayed."""

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


class OffPolicyCorrection(Part, ABC):
    """How much a token counts whose behavior policy is not the policy that is trained."""

    @abstractmethod
    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return a factor of each token's advantage, of the tokens' shape; the loss differentiates through it."""

    def step_factors(self, log_ratios: Sequence[Float64Array]) -> Sequence[Float32Array] | None:
        """Return fixed factors (T,) a replayed trajectory from log w of all before the update; None for none."""
        del log_ratios
        return None
