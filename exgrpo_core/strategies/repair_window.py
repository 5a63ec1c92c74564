"""Repair of forgotten questions: what was solved in every rollout once is rolled out again after a while.

Source: Qin et al. 2026, "Learning to Solve, Forgetting to Retain: Correct-Set Turnover in RLVR" (arXiv 2606.03087).
Only its abstract was read: mastered prompts are tracked and come back periodically in the place of others of the batch,
before rollouts, since repair costs more the longer a review waits; no old trajectory is trained on. Assumed: a question
is mastered from the first group on that solves it in all K rollouts, also when it fails later. Differs: rho bounds the
share of reviews. Not known: the period, so 5 steps is a guess, and the order, so forgotten questions come first, then
those that wait longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About, Needs
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Count
from exgrpo_core.types import GroupPlan, RolloutGroup, Trajectory


@dataclass(frozen=True, slots=True)
class RepairWindow(ReplayMethod):
    """Mastered questions, rolled out K times again; forgotten ones first, then those that wait longest."""

    name: ClassVar[str] = "repair_window"
    about: ClassVar[About | None] = About(
        "Repair of forgotten questions", "2606.03087", "solved before", "none", "none", REPLAYS_ONLY,
    )  # fmt: skip
    needs: ClassVar[Needs] = {
        "retired": ("never", "reviews questions that are solved"),
        "buffer_capacity": (None, "reviews questions however long they wait"),
        "buffer_age": (None, "reviews questions however long they wait"),
    }
    num_past_groups: ClassVar[int] = 1
    rollouts_per_question: int
    review_delay: Count = 5
    """Steps from a question's last success or review to its next review."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield K rollouts of each question, reviewed or fresh."""
        drawn = step.draw(self.draw, step.num_wanted, with_unsolved=True)
        reviewed = [GroupPlan(index, step.rollouts_per_question) for index in drawn]
        yield step.fresh(step.batch_size - len(drawn), drawn) + reviewed

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return mastered questions whose review is due; nothing is random."""
        del rng
        is_mastered = questions.most_correct == self.rollouts_per_question
        last_steps = np.maximum(questions.newest_rollout_steps, questions.last_draw_steps)
        is_due = is_mastered & (questions.step - last_steps >= self.review_delay)
        order = np.lexsort((last_steps, questions.past_correct[:, -1] == self.rollouts_per_question))
        chosen = order[is_due[order]][:num_questions]
        return questions.take(questions.indices[chosen], is_due / max(is_due.sum(), 1))

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return one success: it keeps the question in the buffer."""
        del group
        return successes[:1]
