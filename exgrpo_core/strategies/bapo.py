"""BAPO: hard questions, rolled out again, and stored groups take the places of groups without a gradient.

Source: Wan et al. 2026, "Buffer Matters" (arXiv 2602.20722) by its abstract, and its code (github.com/waunx/BAPO_ICLR,
`OffPolicyManager` of verl/trainer/ppo/ray_trainer.py), whose defaults these are: every 2 steps hard questions, of a
rate of at most 1/8, are rolled out again; what is then missing are stored groups of a rate from 1/8 to 2/8. Differs: a
hard question is trained on if its new rewards differ, where the code asks for a higher mean than before; as many are
rolled out again as places are free, not 32; rho bounds the share of both. Left out: rollouts by a policy that lags
behind, rates that move with the mean score, limits of 128 questions and 3 steps, clipping around the ratio before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep
from exgrpo_core.methods.ranges import Count, Share
from exgrpo_core.strategies.stored_groups import StoredGroups
from exgrpo_core.types import GroupPlan, RolloutGroup


@dataclass(frozen=True, slots=True)
class Bapo(StoredGroups):
    """Hard questions again and stored groups in the place of groups of equal rewards."""

    name: ClassVar[str] = "bapo"
    about: ClassVar[About | None] = About(
        "BAPO", "2602.20722", "hard, again", "whole stored group", "clipped ratio", REPLAYS_ONLY,
    )  # fmt: skip
    replaces_fresh: ClassVar[bool] = False
    retry_interval: Count = 2
    """Steps from one round of hard questions to the next."""
    hard_rate: Share = 1 / 8
    least_rate: Share = 1 / 8
    most_rate: Share = 2 / 8

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions, then hard ones again, then stored groups."""
        yield step.fresh(step.batch_size)
        draw = partial(self.draw, step_groups=step.groups)
        num_hard = min(step.num_wanted, self._num_free(step))
        retried = step.draw(partial(draw, is_hard=True), num_hard, with_unsolved=True)
        yield [GroupPlan(index, step.rollouts_per_question) for index in retried]
        num_stored = min(step.num_wanted - len(retried), self._num_free(step))
        yield self.plan_replays(step, step.draw(draw, num_stored))

    def draw(
        self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator,
        step_groups: Sequence[RolloutGroup] = (), is_hard: bool = False,
    ) -> QuestionDraw:  # fmt: skip
        """Return hard questions in every `retry_interval`-th step, or those of a good rate; none that the step has."""
        taken = [group.question.index for group in step_groups]
        rates = questions.correctness_rates
        low, high = (0.0, self.hard_rate) if is_hard else (self.least_rate, self.most_rate)
        is_open = (rates >= low) & (rates <= high) & ~np.isin(questions.indices, taken)
        is_open &= not is_hard or questions.step % self.retry_interval == 0
        return questions.draw_evenly(questions.indices[is_open], num_questions, rng)

    def _num_free(self, step: OpenStep) -> int:
        return max(0, step.batch_size - sum(not group.has_equal_rewards for group in step.groups))
