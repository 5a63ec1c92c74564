"""Prompt Replay: questions of medium difficulty are rolled out again; no old trajectory is trained on.

Source: Baroian and Berger 2026, "Prompt Replay" (arXiv 2603.21177). Only its abstract was read: prompts of medium
difficulty enter a buffer after each step, those nearest to a pass rate of one half come first, after a cooldown and at
most so many times. Differs: a question is known from its first success on, as the replay buffer holds it; rho bounds
the share of such questions. Not known: cooldown and number of uses, so 5 steps and 4 uses are guesses, and the bounds
of medium difficulty, so only questions solved 0 of K are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Count
from exgrpo_core.types import GroupPlan


@dataclass(frozen=True, slots=True)
class PromptReplay(ReplayMethod):
    """Questions whose correctness rate is nearest to one half, rolled out K times again."""

    name: ClassVar[str] = "prompt_replay"
    about: ClassVar[About | None] = About(
        "Prompt Replay", "2603.21177", "nearest to half", "none", "none", REPLAYS_ONLY,
    )  # fmt: skip
    cooldown_steps: Count = 5
    """Steps from a question's last rollouts to the next replay."""
    max_uses: Count = 4
    """Most replays of a question."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield K rollouts of each question, drawn or fresh."""
        drawn = step.draw(self.draw, step.num_wanted)
        again = [GroupPlan(index, step.rollouts_per_question) for index in drawn]
        yield step.fresh(step.batch_size - len(drawn), drawn) + again

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return the nearest ones, the lower index first among equals; nothing is random."""
        del rng
        last_steps = np.maximum(questions.newest_rollout_steps, questions.last_draw_steps)
        is_ready = questions.step - last_steps >= self.cooldown_steps
        is_ready &= questions.num_draws < self.max_uses
        distances = np.abs(questions.correctness_rates - 0.5)
        order = np.argsort(distances, kind="stable")
        chosen = order[is_ready[order]][:num_questions]
        return questions.take(questions.indices[chosen], is_ready / max(is_ready.sum(), 1))
