"""RePO: every question of the batch with enough stored trajectories replays some of them in addition to its K rollouts.

Source: Li et al. 2025, "RePO: Replay-Enhanced Policy Optimization" (arXiv 2506.09340, Eqs. 4 to 6, section 3.2) and
its code, github.com/SihengLi99/RePO. Both parts have their own advantages ("split"): `replays_per_group` is 8 there,
with the newest 16 of a question kept and replay from 16 on, the 8 of highest reward: the numbers of its script, not its
defaults. Its presets have clipping on both parts (`off_policy_correction: clip`), `normalize_by_std`, `token_mean` and
no KL term. As in its code, both parts are averaged over all rows together, the replayed part times 1.

Its rules of retrieval are full scope, recency, reward and variance (`_replay_step` of its code): `all` or `random_k`,
`recent_k`, `highest_k`, `max_variance_k`. Full scope is `random` here: r of all, or all where r is as large. Assumed:
among equal rewards the oldest first, as its stable sort has them; the subset of largest variance is found among the j
highest with the r - j lowest rewards, which holds the maximum (variance is convex in each reward), of equal variances
the larger sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod, TrajectorySelector
from exgrpo_core.methods.ranges import Count
from exgrpo_core.types import Baseline, Float32Array, GroupPlan, Int64Array, RolloutGroup, Trajectory


@dataclass(frozen=True, slots=True)
class Repo(ReplayMethod):
    """All questions of the batch that have `min_stored` trajectories; rho bounds their share."""

    name: ClassVar[str] = "repo"
    about: ClassVar[About | None] = About(
        "RePO", "2506.09340", "all with enough", "highest reward", "own baseline, clipped",
        REPLAYS_ONLY | {"trajectory_selection": "highest_reward", "replays_per_group": 8, "experience_ratio": 1.0},
    )  # fmt: skip
    keeps_duplicates: ClassVar[bool] = True
    min_stored: Count = 16
    max_stored: Count = 16
    """Newest trajectories of a question that are kept."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions; drawn ones replay in addition to their K rollouts, with a baseline of their own."""
        fresh = step.fresh(step.batch_size)
        drawn = step.draw(self.draw, step.num_wanted, [group.question_index for group in fresh])
        yield [self._with_replays(step, group, drawn.get(group.question_index)) for group in fresh]

    def _with_replays(self, step: OpenStep, group: GroupPlan, weight: float | None) -> GroupPlan:
        if weight is None:
            return group
        rows = step.stored(group.question_index).rows[-int(self.max_stored) :]
        return replace(
            group,
            num_rollouts=step.rollouts_per_question,
            candidates=rows,
            num_replays=step.replays_per_group,
            weight=weight,
            baseline=Baseline.APART,
        )

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return everything."""
        del successes
        return group.trajectories

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions that have enough stored."""
        pool = questions.indices[questions.num_stored >= self.min_stored]
        return questions.draw_evenly(pool, num_questions, rng)


class Newest(TrajectorySelector):
    """The newest trajectories (recency)."""

    name = "newest"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return positions from the newest on, which is last."""
        return np.arange(candidates.num_tokens.size, dtype=np.float32)[::-1]


class HighestReward(TrajectorySelector):
    """The trajectories of the highest reward."""

    name = "highest_reward"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return rewards, negated."""
        return -candidates.rewards.astype(np.float32)


class HighestVariance(TrajectorySelector):
    """The trajectories whose rewards together have the largest variance."""

    name = "highest_variance"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return no numbers: a subset is compared as a whole."""
        return candidates.no_scores

    def choose(
        self, candidates: CandidateColumns, num_wanted: int, rng: np.random.Generator
    ) -> tuple[Int64Array, Float32Array]:
        """Return the positions of that subset, ascending."""
        del rng
        rewards = candidates.rewards
        falling, rising = np.argsort(-rewards, kind="stable"), np.argsort(rewards, kind="stable")
        num = min(num_wanted, rewards.size)
        subsets = []
        for num_high in range(num, -1, -1):
            high = falling[:num_high]
            subsets.append(np.sort(np.append(high, rising[~np.isin(rising, high)][: num - num_high])))
        best = max(subsets, key=lambda part: (round(rewards[part].var(), 12), rewards[part].sum()))
        return best, self.score(candidates)
