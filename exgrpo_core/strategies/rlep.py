"""RLEP: old successes of a batch's questions join their rollouts, with one baseline.

Source: Zhang et al. 2025, "RLEP: Reinforcement Learning with Experience Replay for LLM Reasoning" (arXiv 2507.07451).
Its abstract and its figure 2 were read: verified trajectories of an earlier run are a pool; to the G rollouts of a
question come M of them, and advantages are over all G + M. Differs: the pool is what this run collected so far. Not
known: M, which is `replays_per_group`. Trajectories are drawn at random there (`trajectory_selection: random`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.types import GroupPlan


class Rlep(ReplayMethod):
    """Stored successes join the K rollouts of their question; rho bounds the share of such groups."""

    name: ClassVar[str] = "rlep"
    about: ClassVar[About | None] = About(
        "RLEP", "2507.07451", "of the batch", "random successes", "clipped ratio",
        REPLAYS_ONLY | {"trajectory_selection": "random", "replays_per_group": 2},
    )  # fmt: skip

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions. Those with stored successes replay some in addition to K rollouts."""
        fresh = step.fresh(step.batch_size)
        drawn = step.draw(self.draw, step.num_wanted, [group.question_index for group in fresh])
        yield [self.with_replays(step, group) if group.question_index in drawn else group for group in fresh]

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions of the batch that are in the buffer."""
        return questions.draw_evenly(questions.indices, num_questions, rng)

    def with_replays(self, step: OpenStep, group: GroupPlan) -> GroupPlan:
        """Return the plan of a drawn question: r stored successes in addition to K rollouts."""
        rows = step.stored(group.question_index).rows
        return replace(
            group, num_rollouts=step.rollouts_per_question, candidates=rows, num_replays=step.replays_per_group
        )
