"""VCRL: groups whose rewards hardly vary give their places to questions whose rewards varied most.

Source: Jiang et al. 2025, "VCRL: Variance-based Curriculum Reinforcement Learning for Large Language Models" (arXiv
2509.20317). Only its abstract and reviews of it were read: p is the variance of a group's rewards over the largest
possible one, so 1 at k = K/2; groups of low p are replaced by questions of a memory of high p, which are rolled out
again; no old trajectory is trained on. Differs: a question's newest group stands for the moving average of its p; rho
bounds the share of replaced groups. Not known: the threshold of p, so 0.5 is a guess, and how the memory is drawn from,
so it is in proportion to p.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Range
from exgrpo_core.types import Float64Array, GroupPlan


@dataclass(frozen=True, slots=True)
class Vcrl(ReplayMethod):
    """Questions of high reward variance are rolled out in the place of groups of low variance."""

    name: ClassVar[str] = "vcrl"
    about: ClassVar[About | None] = About(
        "VCRL", "2509.20317", "high reward variance", "none", "none", REPLAYS_ONLY,
    )  # fmt: skip
    rollouts_per_question: int
    variance_threshold: Annotated[float, Range(above=0, most=1)] = 0.5
    """Least p of a group that keeps its place, and of a question in memory."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions, then a question from memory for each group of low p."""
        yield step.fresh(step.batch_size)
        variances = np.array([group.rewards.var(ddof=1) for group in step.groups])
        num_low = int(np.count_nonzero(self.shares(variances) < self.variance_threshold))
        draw = partial(self.draw, taken=[group.question.index for group in step.groups])
        drawn = step.draw(draw, min(step.num_wanted, num_low))
        yield [GroupPlan(index, step.rollouts_per_question) for index in drawn]

    def draw(
        self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator, taken: Sequence[int] = ()
    ) -> QuestionDraw:
        """Return questions of high p in proportion to p, none of `taken`."""
        priorities = self.shares(questions.reward_stds**2)
        priorities[(priorities < self.variance_threshold) | np.isin(questions.indices, taken)] = 0.0
        return questions.draw(priorities, num_questions, rng)

    def shares(self, variances: Float64Array) -> Float64Array:
        """Return p: variances (of K - 1) over that of floor(K/2) correct rollouts of K."""
        size = self.rollouts_per_question
        return variances * (size * (size - 1) / (size**2 // 4))
