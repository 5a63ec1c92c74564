"""RePO's rules of retrieval: full scope, recency, reward and variance.

Source: Li et al. 2025 (arXiv 2506.09340, section 3.2) and `_replay_step` of its code: `all` or `random_k`, `recent_k`,
`highest_k`, `max_variance_k`. Full scope is `random` here: r of all, or all where r is as large. Assumed: among equal
rewards the oldest first, as its stable sort has them; the subset of largest variance is found among the j highest with
the r - j lowest rewards, which holds the maximum (variance is convex in each reward), of equal variances the larger
sum.
"""

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.types import Float32Array, Int64Array


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
