"""ExGRPO as the paper has it, and what its released code does otherwise.

The paper's. Source: Zhan et al. 2025 (arXiv 2510.02245), Algorithm 1, lines 5 to 15, Algorithm 2, section 4.2.

The released code's. Source: github.com/ElliottYan/LUFFY, folder ExGRPO: `weighted_bucket_sampler.py` and
`experience_helpers.py`.
- Buckets: weights N(k; K/2, 1) over numbers of successes, so sigma is 1/K as a correctness rate. Draws beyond a
  bucket's size go, one at a time, to buckets with room.
- Trajectory: their mean of entropies is over the positions from L on, of the last M of a left-padded row, with L the
  length of another candidate. With L far below M that is every response token and a part of the prompt over a nearly
  constant number, so the lowest sum of response entropies stands for it: short answers are chosen.
Left out: L's and the prompt's share of that mean; texts tokenised again; retired questions that stay in the fresh
stream until the next epoch; updates skipped at gradient norms over 500 (`skip_grad_bound` of its script). Of what is
here `zero_correct: keep_bucket` belongs to it, and `clipping: never`: its script has `loss_remove_clip` from the start.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.experience_management.bucket_sampler import draw_bucket_counts, partition, sample_members
from exgrpo_core.methods.about import About
from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OffPolicyCorrection, QuestionSampler, TrajectorySelector
from exgrpo_core.policy_optimization.importance import shape_ratio
from exgrpo_core.types import Float32Array, TokenRatios

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gaussian(QuestionSampler):
    """Algorithm 2: buckets by Gaussian weights over correctness rates, then uniformly within a bucket."""

    name: ClassVar[str] = "gaussian"
    about: ClassVar[About | None] = About(
        "ExGRPO", "2510.02245", "medium correctness", "lowest entropy", "policy shaping",
    )  # fmt: skip
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
    """f(w) = w / (w + beta), large for rare tokens; w itself without policy shaping."""

    name: ClassVar[str] = "policy_shaping"
    shaping_beta: float
    shapes_policy: bool = True

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return f(w) of each token."""
        return shape_ratio(tokens.ratios, self.shaping_beta) if self.shapes_policy else tokens.ratios


@dataclass(frozen=True, slots=True)
class ReleasedBuckets(QuestionSampler):
    """Medium difficulty first, with a spread of one success of K."""

    name: ClassVar[str] = "exgrpo_released"
    rollouts_per_question: int

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions by their number of successes."""
        parts = partition(questions.bucket_members(), 0.5, 1.0 / self.rollouts_per_question)
        num_wanted = min(num_questions, int(parts.sizes.sum()))
        drawn = rng.multinomial(num_wanted, parts.probabilities) if num_wanted else np.zeros_like(parts.sizes)
        counts = np.minimum(drawn, parts.sizes)
        for _ in range(num_wanted - int(counts.sum())):
            open_weights = np.where(counts < parts.sizes, parts.probabilities, 0.0)
            counts[rng.choice(counts.size, p=open_weights / open_weights.sum())] += 1
        chosen = np.concatenate(sample_members(parts.members, counts, rng))
        return QuestionDraw(chosen, parts.probabilities, np.maximum(drawn - parts.sizes, 0))


class LowestTotalEntropy(TrajectorySelector):
    """The lowest sum of token entropies."""

    name = "lowest_total_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return sums over response tokens."""
        return candidates.entropies * candidates.num_tokens.astype(np.float32)
