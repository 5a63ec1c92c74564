"""DAPO's dynamic sampling: groups whose rewards are all equal are filled up by further questions. Nothing is replayed.

Source: Yu et al. 2025, "DAPO" (arXiv 2503.14476, section 3.2, Algorithm 1) and verl's recipe, whose scripts allow 10
batches a step. Assumed: a round asks for as many questions as are missing, not for a whole batch, of which the recipe
drops the surplus; rewards are compared, where its scripts compare correctness; where questions or rounds run out,
groups of equal rewards fill the batch, without a gradient, where the recipe ends with an error.
Clip-higher is `clip_epsilon_high: 0.28`; DAPO's token-level loss and its penalty for overlong responses are not here.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.protocols import OpenStep, QuestionColumns, QuestionDraw, QuestionSampler


@dataclass(frozen=True, slots=True)
class Dapo(QuestionSampler):
    """Further questions replace groups of equal rewards, in at most `max_refills` rounds; nothing is replayed."""

    name: ClassVar[str] = "dapo"
    max_refills: float = 9

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return no question."""
        del num_questions
        return questions.draw_evenly(questions.indices[:0], 0, rng)

    def complete(self, step: OpenStep) -> None:
        """Roll out as many further questions as groups of different rewards are missing, or as there are."""
        for _ in range(int(self.max_refills)):
            step.roll_out_more(step.batch_size - sum(not group.has_equal_rewards for group in step.groups))
