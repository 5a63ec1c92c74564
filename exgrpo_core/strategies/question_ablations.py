"""Question selections that the paper compares with medium difficulty first.

Source: the paper's section 6.2 for `uniform`. `recent` is vanilla replay: every question whose newest trajectory is
young enough, with the same probability.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import QuestionSampler


class Uniform(QuestionSampler):
    """Every drawable question with the same probability ("w/o Ques. Sel.")."""

    name = "uniform"
    is_even_within_buckets = True

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions of any bucket."""
        return questions.draw_evenly(questions.indices, num_questions, rng)


@dataclass(frozen=True, slots=True)
class Recent(QuestionSampler):
    """Questions with a trajectory at most `recent_steps` old, uniformly."""

    name: ClassVar[str] = "recent"
    recent_steps: int

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions that are young enough."""
        is_recent = questions.newest_steps >= questions.step - self.recent_steps
        return questions.draw_evenly(questions.indices[is_recent], num_questions, rng)
