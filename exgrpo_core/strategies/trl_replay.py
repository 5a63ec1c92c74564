"""TRL's replay buffer: groups whose rewards are all equal are replaced by stored groups.

Source: `GRPOWithReplayBufferTrainer` of TRL (trl/experimental/grpo_with_replay_buffer): groups with variance are kept,
scored by sum |A| times the standard deviation of their rewards, at most 64 of the highest score; a group without
variance is replaced by one drawn in proportion to its score, with its old log-probs. CLIP is on both
(`off_policy_correction: clip`). Assumed: a question's newest group stands for it, so one draw has no group twice, where
TRL draws with replacement from a buffer too small; this step's groups can be drawn from the next step on, where TRL
stores them before it draws; |A| is the one trained on; rho bounds the share of replaced groups.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import Collected, Placement, QuestionSampler
from exgrpo_core.policy_optimization.advantages import STD_EPSILON


@dataclass(frozen=True, slots=True)
class TrlReplay(QuestionSampler):
    """Stored groups in proportion to sum |A| times standard deviation."""

    name: ClassVar[str] = "trl_replay"
    placement: ClassVar[Placement] = Placement.EQUAL_REWARDS
    collected: ClassVar[Collected] = Collected.VARIED_GROUPS
    rollouts_per_question: int
    normalize_by_std: bool
    capacity: float = 64
    """Groups of the highest scores that are kept."""

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions whose newest stored group is replayed."""
        sizes = questions.reward_deviations / (questions.reward_stds + STD_EPSILON if self.normalize_by_std else 1.0)
        scores = self.rollouts_per_question * sizes * questions.reward_stds
        # Of equal scores the older group stays.
        order = np.lexsort((questions.newest_steps, -scores))
        scores[order[int(self.capacity) :]] = 0.0
        return questions.draw(scores / max(scores.sum(), 1e-12), num_questions, rng)
