"""ExGRPO as the paper has it: medium difficulty first, the success of lowest entropy, a shaped importance ratio.

Source: the paper's Algorithm 1, lines 5 to 15, Algorithm 2 and section 4.2.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.experience_management.bucket_sampler import draw_bucket_counts, sample_members
from exgrpo_core.experience_management.partition import partition
from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw, TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection, QuestionSampler, TrajectorySelector
from exgrpo_core.policy_optimization.shaping import shape_ratio
from exgrpo_core.types import Float32Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gaussian(QuestionSampler):
    """Algorithm 2: buckets by Gaussian weights over correctness rates, then uniformly within a bucket."""

    name: ClassVar[str] = "gaussian"
    is_even_within_buckets: ClassVar[bool] = True
    bucket_center: float
    bucket_spread: float

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return the questions of Algorithm 1's lines 7 and 8."""
        parts = partition(questions.bucket_members(), self.bucket_center, self.bucket_spread)
        draw = draw_bucket_counts(parts.sizes, parts.probabilities, min(num_questions, int(parts.sizes.sum())), rng)
        chosen = np.concatenate(sample_members(parts.members, draw.counts, rng))
        return QuestionDraw(chosen, draw.probabilities, draw.overflows)


class LowestEntropy(TrajectorySelector):
    """The success of the lowest mean entropy under the current policy (lines 9 to 15)."""

    name = "lowest_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return mean token entropies."""
        return candidates.entropies


@dataclass(frozen=True, slots=True)
class PolicyShaping(OffPolicyCorrection):
    """f(w) = w / (w + beta), large for rare tokens; w itself without policy shaping (beta is None)."""

    name: ClassVar[str] = "policy_shaping"
    shaping_beta: float | None

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return f(w) of each token."""
        return tokens.ratios if self.shaping_beta is None else shape_ratio(tokens.ratios, self.shaping_beta)
