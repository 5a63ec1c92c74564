"""FIFO replay: stored groups of a bounded queue, drawn uniformly, train again as they were rolled out.

Source: Arnal et al. 2026, "Efficient RL Training for LLMs with Experience Replay" (arXiv 2604.08706). Only its abstract
and a summary were read: rollouts enter a first-in first-out buffer and are read uniformly, several times, which saves
rollouts. Differs: the queue counts questions, each with its newest group, where the paper's counts rollouts; rho is the
share of replayed groups; fresh groups are trained in the step that generates them; groups without a success wait until
the question has one. Not known: the capacity, so 256 is a guess, and the loss, so `off_policy_correction` decides.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.ranges import Count
from exgrpo_core.strategies.stored_groups import StoredGroups


@dataclass(frozen=True, slots=True)
class Fifo(StoredGroups):
    """Uniformly among the newest groups of a first-in first-out queue."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[About | None] = About(
        "FIFO replay", "2604.08706", "uniform, recent queue", "whole stored group", "clipped ratio", REPLAYS_ONLY,
    )  # fmt: skip
    capacity: Count = 256
    """Questions whose newest group is in the queue."""

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions of the queue; of groups of one step those of the higher index entered last."""
        newest_last = np.argsort(questions.newest_rollout_steps, kind="stable")
        queue = np.sort(questions.indices[newest_last[-int(self.capacity) :]])
        return questions.draw_evenly(queue, num_questions, rng)
