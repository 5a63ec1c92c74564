"""Rollout-level replay: single old rollouts of large advantage train again, with the advantage of their first group.

Source: Yoo et al. 2026, "Rollout-Level Advantage-Prioritized Experience Replay for GRPO" (arXiv 2606.04560). Only its
abstract was read: the buffer holds rollouts, not groups; those older than tau_max steps leave; priority is the size of
the advantage; a batch is all fresh rollouts and then replayed ones. Differs: a question is drawn in proportion to the
mean |advantage| of its newest group with a gradient, and gives its `replays_per_group` rollouts of the largest
|advantage|, those replayed least first among equals; they take the place of a fresh question, and rho bounds the share
of such places; groups without a success wait until the question has one. Not known: tau_max, so 8 steps is a guess, and
the loss, so `off_policy_correction` decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep
from exgrpo_core.methods.ranges import Count
from exgrpo_core.policy_optimization.mixed_batch import group_advantages
from exgrpo_core.strategies.stored_groups import StoredGroups
from exgrpo_core.types import Baseline, GroupPlan, RolloutGroup, Trajectory


@dataclass(frozen=True, slots=True)
class RolloutLevel(StoredGroups):
    """Rollouts of the largest |advantage|, of questions in proportion to their mean |advantage|."""

    name: ClassVar[str] = "rollout_level"
    about: ClassVar[About | None] = About(
        "Rollout-level replay", "2606.04560", "large mean advantage", "largest advantage", "advantages kept, clipped",
        REPLAYS_ONLY | {"replays_per_group": 4},
    )  # fmt: skip
    normalize_by_std: bool
    max_age: Count = 8
    """tau_max: steps from a group's rollouts to its last replay."""

    def plan_replays(self, step: OpenStep, drawn: Mapping[int, float]) -> list[GroupPlan]:
        """Plan the rollouts of the newest stored group of each drawn question."""
        plans = []
        for index, weight in drawn.items():
            stored = step.stored(index)
            newest = np.flatnonzero(stored.rollout_steps == stored.rollout_steps[-1])
            advantages = group_advantages(stored.rewards[newest].astype(np.float32), self.normalize_by_std)
            order = np.lexsort((stored.num_replays[newest], -np.abs(advantages)))[: step.replays_per_group]
            chosen, rows = np.sort(order), stored.rows[newest]
            plans.append(GroupPlan(index, 0, rows[chosen], None, weight, Baseline.KEPT, advantages[chosen]))
        return plans

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory] | None:
        """Return all of a group that has a gradient."""
        del successes
        return None if group.has_equal_rewards else group.trajectories

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions whose newest group is not older than tau_max."""
        is_young = questions.step - questions.newest_rollout_steps <= self.max_age
        priorities = np.where(is_young, questions.reward_deviations, 0.0)
        return questions.draw(priorities, num_questions, rng)
