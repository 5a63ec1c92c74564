"""FreshPER: prioritized replay whose priorities decay with age.

Source: Ma et al. 2026, "Freshness-Aware Prioritized Experience Replay for LLM/VLM Reinforcement Learning" (arXiv
2604.16918). Only its abstract and a summary were read: a priority is multiplied by exp(-age / tau). Differs: priority
and age are of a question's newest group, where the paper's are of a trajectory; replayed trajectories join the step's
batch, where the paper trains further batches of replay in each step. Not known: tau, so 10 steps is a guess, and
whether draws are corrected for, so `priority_beta` is 0, which is no weight.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import About
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.ranges import Positive, Share
from exgrpo_core.strategies.prioritized import Proportional
from exgrpo_core.types import Float64Array


@dataclass(frozen=True, slots=True)
class FreshPer(Proportional):
    """Questions in proportion to p^alpha, p = (mean |advantage| + epsilon) exp(-age / tau)."""

    name: ClassVar[str] = "fresh_per"
    about: ClassVar[About | None] = About(
        "FreshPER", "2604.16918", "large advantage, young", "random", "policy shaping",
        {"trajectory_selection": "random"},
    )  # fmt: skip
    priority_beta: Share = 0.0
    age_scale: Positive = 10.0
    """tau, in steps."""

    def priorities(self, questions: QuestionColumns) -> Float64Array:
        """Return p of each question."""
        decay: Float64Array = np.exp((questions.newest_rollout_steps - questions.step) / self.age_scale)
        return Proportional.priorities(self, questions) * decay
