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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.protocols import (
    CandidateColumns,
    Collected,
    OpenStep,
    QuestionColumns,
    QuestionDraw,
    QuestionSampler,
    TrajectorySelector,
)
from exgrpo_core.types import Float32Array, Int64Array


@dataclass(frozen=True, slots=True)
class Repo(QuestionSampler):
    """All questions of the batch that have `min_stored` trajectories; rho bounds their share."""

    name: ClassVar[str] = "repo"
    draws_first: ClassVar[bool] = False
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

    def complete(self, step: OpenStep) -> None:
        """Let fresh questions replay in addition to their K rollouts, with a baseline of their own."""
        among = np.array([group.question.index for group in step.groups], dtype=np.int64)
        weights = step.draw_replays(step.num_wanted, among)
        for group in step.groups:
            group.replay_weight = weights.get(group.question.index)
            group.has_two_baselines = group.question.index in weights


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
