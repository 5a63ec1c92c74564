"""NexGRPO: failures join the rollouts of their question, those of middling confidence that are nearest to a success.

Source: Guo et al. 2026, "Turning Failures into Value: Negative Experience Replay for RLVR via Confidence Gating and
Boundary Failure Sampling" (ACL 2026, 2026.acl-long.1682). Only its abstract was read: of failed trajectories those of
middling confidence are replayed, and of these those that are semantically similar to correct ones. Assumed:
confidence is the geometric mean of token probabilities now; similarity is the share of token ids in common with the
nearest stored success (Jaccard); failures join K rollouts, with one baseline, as in RLEP. Not known: the bounds, so .3
and .9 are guesses, and how much is kept, so the newest 16 of a question are. Failures outside of them come last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About, Needs
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.protocols import OpenStep, TrajectorySelector
from exgrpo_core.methods.ranges import Count, Share
from exgrpo_core.strategies.rlep import Rlep
from exgrpo_core.types import Float32Array, GroupPlan, RolloutGroup, Trajectory


@dataclass(frozen=True, slots=True)
class NexGrpo(Rlep):
    """Stored failures of questions that also have a success join K rollouts; rho bounds the share of such groups."""

    name: ClassVar[str] = "nexgrpo"
    about: ClassVar[About | None] = About(
        "NexGRPO", "2026.acl-long.1682", "of the batch", "failures near successes", "clipped ratio",
        REPLAYS_ONLY | {"trajectory_selection": "boundary_failure", "replays_per_group": 2},
    )  # fmt: skip
    needs: ClassVar[Needs] = {"trajectory_selection": ("boundary_failure", "replays failures only")}
    max_stored: Count = 16
    """Newest trajectories of a question that are candidates."""

    def with_replays(self, step: OpenStep, group: GroupPlan) -> GroupPlan:
        """Return the plan of a drawn question: failures in addition to K rollouts."""
        stored = step.stored(group.question_index)
        newest = slice(-int(self.max_stored), None)
        rows, is_failure = stored.rows[newest], stored.rewards[newest] < 1.0
        num_failures = 0 if is_failure.all() else int(is_failure.sum())
        if not num_failures:
            return group
        num_replays = min(step.replays_per_group, num_failures)
        return replace(Rlep.with_replays(self, step, group), candidates=rows, num_replays=num_replays)

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return everything."""
        del successes
        return group.trajectories


@dataclass(frozen=True, slots=True)
class BoundaryFailure(TrajectorySelector):
    """Failures of middling confidence that have the most token ids in common with a success."""

    name: ClassVar[str] = "boundary_failure"
    least_confidence: Share = 0.3
    most_confidence: Share = 0.9

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return 1 - similarity, 2 more outside of the bounds, infinity for successes."""
        rewards = candidates.rewards
        tokens = [frozenset(item.token_ids.tolist()) for item in candidates.experiences or ()]
        successes = [ids for ids, reward in zip(tokens, rewards, strict=True) if reward >= 1.0]
        nearest = [max((len(ids & one) / len(ids | one) for one in successes), default=0.0) for ids in tokens]
        confidences = np.exp(-candidates.nlls)
        is_outside = (confidences < self.least_confidence) | (confidences > self.most_confidence)
        return np.where(rewards >= 1.0, np.inf, 1.0 - np.array(nearest) + 2.0 * is_outside).astype(np.float32)
