"""A random stored trajectory ("w/o Traj. Sel."). Source: the paper's section 6.2."""

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.types import Float32Array, Int64Array


class RandomTrajectory(TrajectorySelector):
    """Any stored trajectory with the same probability."""

    name = "random"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return no numbers: nothing is compared."""
        return candidates.no_scores

    def choose(
        self, candidates: CandidateColumns, num_wanted: int, rng: np.random.Generator
    ) -> tuple[Int64Array, Float32Array]:
        """Return positions drawn from `rng`."""
        num_candidates = candidates.num_tokens.size
        if num_wanted == 1:
            return np.array([rng.integers(num_candidates)]), self.score(candidates)
        return rng.choice(num_candidates, min(num_wanted, num_candidates), replace=False), self.score(candidates)
