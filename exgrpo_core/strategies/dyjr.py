"""DyJR: recent successes hold the policy near to where it was by a Jensen-Shannon divergence, not by advantages.

Source: Li et al. 2026, "DyJR: Preserving Diversity in Reinforcement Learning with Verifiable Rewards via Dynamic
Jensen-Shannon Replay" (arXiv 2603.16157). Only its abstract was read: a first-in first-out buffer of adaptive size
keeps those of recent steps, and their divergence is a term of the loss in place of a policy gradient. Assumed: it is
estimated at each token of the past policy as f(w) = (w log w - (1 + w) log((1 + w) / 2)) / 2, w = pi_theta /
pi_past: 0 with derivative 0 at w = 1. Differs: replayed trajectories take places of fresh questions, and rho bounds
their share. Not known: the buffer's size, so those of the newest 4 steps are drawn, and the coefficient, so it is .1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About, Needs
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OffPolicyCorrection, OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Count, Positive
from exgrpo_core.strategies.stored_groups import StoredGroups
from exgrpo_core.types import Baseline, GroupPlan, TokenRatios

if TYPE_CHECKING:
    import torch


class JensenShannon(OffPolicyCorrection):
    """Minus the divergence f(w), which the loss then gains, times an advantage that is its coefficient."""

    name: ClassVar[str] = "jensen_shannon"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return -f(w)."""
        w = tokens.ratios
        return ((1.0 + w) * ((1.0 + w) / 2.0).log() - w * w.log()) / 2.0


@dataclass(frozen=True, slots=True)
class DyJr(StoredGroups):
    """Recent successes with advantages of `divergence_weight`, for the divergence alone."""

    name: ClassVar[str] = "dyjr"
    about: ClassVar[About | None] = About(
        "DyJR", "2603.16157", "recent successes", "newest", "Jensen-Shannon term",
        REPLAYS_ONLY | {"off_policy_correction": "jensen_shannon"},
    )  # fmt: skip
    needs: ClassVar[Needs] = StoredGroups.needs | {
        "off_policy_correction": ("jensen_shannon", "reinforces no replayed token"),
    }
    max_age: Count = 4
    """Steps from a trajectory's rollout to its last replay."""
    divergence_weight: Positive = 0.1

    keep = ReplayMethod.keep

    def plan_replays(self, step: OpenStep, drawn: Mapping[int, float]) -> list[GroupPlan]:
        """Plan the newest r successes of each drawn question, none of them too old."""
        kept = np.full(step.replays_per_group, self.divergence_weight, np.float32)
        plans = []
        for index in drawn:
            stored = step.stored(index)
            rows = stored.rows[stored.ages <= self.max_age][-step.replays_per_group :]
            plans.append(GroupPlan(index, 0, rows, None, 1.0, Baseline.KEPT, kept[: rows.size]))
        return plans

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions whose newest success is recent."""
        is_recent = questions.step - questions.newest_rollout_steps <= self.max_age
        return questions.draw_evenly(questions.indices[is_recent], num_questions, rng)
