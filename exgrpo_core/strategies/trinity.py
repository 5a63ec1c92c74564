"""Trinity-RFT's priority queue: the stored groups of highest priority, model version minus decay times uses.

Source: `LinearDecayPriority` and `AsyncPriorityQueue` of Trinity-RFT (trinity/buffer/storage/queue.py): an item is the
group that a task wrote; reading it counts a use and puts it back after a cooldown; decay is 2 there; of equal
priorities the item that was put first is read first. Assumed: a model version is a step; a question's newest group
stands for it; the cooldown is in steps, not seconds; rho is the share of such groups, where the original reads all of
its batch from the queue; nothing is dropped, which matters only if the queue is longer than its capacity; groups
without a success, which have no gradient, wait until the question has one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import Collected, Placement, QuestionSampler


@dataclass(frozen=True, slots=True)
class Trinity(QuestionSampler):
    """The highest of newest step - decay * uses, none within the cooldown after its last use."""

    name: ClassVar[str] = "trinity"
    placement: ClassVar[Placement] = Placement.GROUP
    collected: ClassVar[Collected] = Collected.EVERYTHING
    decay: float = 2.0
    cooldown_steps: float = 1
    """Steps from a use to the next possible one."""

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return the questions of highest priority; nothing is random."""
        del rng
        is_new = questions.last_draw_steps <= questions.newest_steps
        is_ready = is_new | (questions.step - questions.last_draw_steps >= self.cooldown_steps)
        priorities = questions.newest_steps - self.decay * questions.newest_uses
        order = np.lexsort((questions.newest_steps, -priorities))
        chosen = order[is_ready[order]][:num_questions]
        return questions.take(questions.indices[chosen], is_ready / max(is_ready.sum(), 1))
