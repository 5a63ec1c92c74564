"""Prioritized experience replay of questions, proportional and by rank.

Source: Schaul et al. 2016, "Prioritized Experience Replay" (arXiv 1511.05952, section 3.3, Algorithm 1): P(i) =
p_i^alpha / sum p^alpha with p = |error| + epsilon or 1 / rank, and weights (n P(i))^-beta over their largest. Assumed:
the mean |reward - group mean| of a question's latest group takes the place of the TD error, so it is known when it is
stored, where a new item of the paper has the largest priority; a draw has no question twice, so P is that of its first
question, and draws are not stratified; epsilon is 0.01, as the paper says only that it is small; beta stays as set,
where the paper lets it rise to 1; weights are over the largest of all stored, as in OpenAI's baselines.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import QuestionSampler
from exgrpo_core.methods.ranges import Positive, Share
from exgrpo_core.types import Float64Array


@dataclass(frozen=True, slots=True)
class Proportional(QuestionSampler):
    """Questions in proportion to p^alpha, p = mean |advantage| + epsilon (prioritized experience replay)."""

    name: ClassVar[str] = "prioritized_proportional"
    about: ClassVar[About | None] = About(
        "PER", "1511.05952", "large mean advantage", "random", "weights of draws", {"trajectory_selection": "random"},
    )  # fmt: skip
    priority_alpha: Share = 0.6
    priority_beta: Share = 0.4
    priority_epsilon: Positive = 1e-2

    def priorities(self, questions: QuestionColumns) -> Float64Array:
        """Return p of each question."""
        return questions.reward_deviations + self.priority_epsilon

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions in proportion to p^alpha, with their importance weights."""
        powers = self.priorities(questions) ** self.priority_alpha
        probabilities = powers / max(powers.sum(), 1e-12)
        draw = questions.draw(powers, num_questions, rng)
        # A question that is never drawn has no weight.
        weights = np.where(probabilities > 0.0, powers.size * probabilities, np.inf) ** -self.priority_beta
        weights /= weights.max(initial=1e-12)
        positions = np.searchsorted(questions.indices, draw.question_indices)
        return replace(draw, weights=weights[positions])


@dataclass(frozen=True, slots=True)
class ByRank(Proportional):
    """Questions in proportion to p^alpha, p = 1 / rank by mean |advantage|, the lower index first among equals."""

    name: ClassVar[str] = "prioritized_rank"
    about: ClassVar[About | None] = About(
        "PER by rank", "1511.05952", "rank by advantage", "random", "weights of draws",
        {"trajectory_selection": "random"},
    )  # fmt: skip
    priority_alpha: Share = 0.7
    priority_beta: Share = 0.5

    def priorities(self, questions: QuestionColumns) -> Float64Array:
        """Return 1 / rank of each question."""
        ranks = np.empty(questions.indices.size)
        ranks[np.argsort(-questions.reward_deviations, kind="stable")] = np.arange(1, ranks.size + 1)
        return 1.0 / ranks
