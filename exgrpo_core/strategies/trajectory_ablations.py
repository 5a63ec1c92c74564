"""Scores that the paper compares with mean token entropy.

Source: its sections 3.2 and 6.2, and its appendix "Alternative Selection Metrics".
"""

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.types import Float32Array


class HighestEntropy(TrajectorySelector):
    """The success of the highest mean entropy, the other end of the paper's rule."""

    name = "highest_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return mean token entropies, negated."""
        return -candidates.entropies


class LowestNll(TrajectorySelector):
    """The lowest mean of -log pi over its tokens (Algorithm 1's line read literally)."""

    name = "lowest_nll"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return means of -log pi."""
        return candidates.nlls


class LowestPerplexity(TrajectorySelector):
    """The lowest perplexity: the same choice as the lowest mean of -log pi."""

    name = "lowest_perplexity"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return perplexities."""
        with np.errstate(over="ignore"):
            return np.exp(candidates.nlls.astype(np.float64)).astype(np.float32)


class LowestSampledEntropy(TrajectorySelector):
    """The lowest mean of -pi log pi over sampled tokens (the text of section 3.2)."""

    name = "lowest_sampled_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return those means."""
        return candidates.sampled_entropies
