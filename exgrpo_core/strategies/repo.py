"""RePO: every question of the batch with enough stored trajectories replays some of them beside its K rollouts.

Source: Li et al. 2025, "RePO: Replay-Enhanced Policy Optimization" (arXiv 2506.09340, Eqs. 4 to 6, section 3.2) and
its code, github.com/SihengLi99/RePO. Both parts have their own advantages ("split"): `replays_per_group` is 8 there,
with the newest 16 of a question kept and replay from 16 on, the 8 of highest reward: the numbers of its script, not its
defaults. Its presets have clipping on both parts (`off_policy_correction: clip`), `normalize_by_std`, `token_mean` and
no KL term. As in its code, both parts are averaged over all rows together, the replayed part times 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import Collected, Placement, QuestionSampler


@dataclass(frozen=True, slots=True)
class Repo(QuestionSampler):
    """All questions of the batch that have `min_stored` trajectories; rho bounds their share."""

    name: ClassVar[str] = "repo"
    placement: ClassVar[Placement] = Placement.ADD
    collected: ClassVar[Collected] = Collected.EVERYTHING
    min_stored: float = 16
    max_stored: float = 16
    """Newest trajectories of a question that are kept."""

    @property
    def max_candidates(self) -> int:
        """What is kept of a question."""
        return int(self.max_stored)

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions that have enough stored."""
        pool = questions.indices[questions.num_stored >= self.min_stored]
        return questions.draw_evenly(pool, num_questions, rng)
