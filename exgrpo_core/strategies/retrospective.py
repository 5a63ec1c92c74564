"""Retrospective replay: rollouts of hard questions begin with the first half of an old success.

Source: Dou et al. 2025, "Improving RL Exploration for LLM Reasoning through Retrospective Replay" (RRL, arXiv
2504.14363). Only its abstract was read: promising states of early training are visited again later, so that ideas that
were given up too early are explored. Assumed: a state is the beginning of a stored success, of the oldest one of its
question, since early exploration is wider; tokens of the prefix are not trained on. Differs: rho bounds the share of
such questions; the paper's states are chosen by their value, which nothing estimates here. Not known: how far into a
trajectory a state lies, so half of it is a guess, and which questions are hard, so those solved in at most a quarter of
their rollouts are. Its baseline is the mean of a group whose rollouts share the prefix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Range, Share
from exgrpo_core.types import GroupPlan, Prefix


@dataclass(frozen=True, slots=True)
class Retrospective(ReplayMethod):
    """Hard questions, rolled out K times from within their oldest stored success."""

    name: ClassVar[str] = "retrospective"
    about: ClassVar[About | None] = About(
        "Retrospective replay", "2504.14363", "hard questions", "half a success", "prefix not trained", REPLAYS_ONLY,
    )  # fmt: skip
    rollouts_per_question: int
    hard_rate: Share = 0.25
    """Highest correctness rate of a question that is drawn."""
    prefix_share: Annotated[float, Range(above=0, below=1)] = 0.5
    """Share of the old trajectory that rollouts begin with."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield K rollouts of each fresh question, and of each drawn one from its prefix on."""
        drawn = step.draw(self.draw, step.num_wanted, with_unsolved=True)
        begun = [GroupPlan(index, step.rollouts_per_question, prefix=self._prefix(step, index)) for index in drawn]
        yield step.fresh(step.batch_size - len(drawn), drawn) + begun

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return hard questions, each with the same probability."""
        is_hard = questions.num_correct <= self.hard_rate * self.rollouts_per_question
        return questions.draw_evenly(questions.indices[is_hard], num_questions, rng)

    def _prefix(self, step: OpenStep, question_index: int) -> Prefix | None:
        stored = step.stored(question_index)
        num_tokens = int(self.prefix_share * stored.num_tokens[0])
        return Prefix(int(stored.rows[0]), num_tokens) if num_tokens else None
