"""A2R: questions whose correctness varied most over past rollouts, and replay that counts less as policies differ.

Source: Zhang et al. 2026, "Plug-and-Play Data Module for Code RL: Adaptive Ambiguity Replay" (Findings of ACL 2026,
2026.findings-acl.886). Only its abstract was read: "ambiguous" samples of dataset cartography, found over epochs and
not within one, are replayed first, and replayed rollouts have an adaptive importance by the divergence of the policies.
Assumed: ambiguity is the standard deviation of k / K over a question's newest groups, as cartography's variability.
Differs: questions are drawn for the paper's step, whose groups replay one trajectory each. Not known: how ambiguity
turns into draws, so they are in proportion to it, with .01 added; how many epochs count, so the newest 8 groups do; the
form of the importance, so it is exp(-d) with d the mean |log w| of the trajectory, times w.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.about import About
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OffPolicyCorrection, QuestionSampler
from exgrpo_core.methods.ranges import NotNegative
from exgrpo_core.types import Float32Array, Float64Array, TokenRatios

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Ambiguous(QuestionSampler):
    """Questions in proportion to the standard deviation of their past correctness rates."""

    name: ClassVar[str] = "a2r"
    about: ClassVar[About | None] = About(
        "A2R", "2026.findings-acl.886", "most varied correctness", "lowest entropy", "by policy divergence",
        {"off_policy_correction": "policy_divergence"},
    )  # fmt: skip
    num_past_groups: ClassVar[int] = 8
    rollouts_per_question: int
    priority_epsilon: NotNegative = 1e-2

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions by their ambiguity."""
        past = questions.past_correct
        is_known, rates = past >= 0, past / self.rollouts_per_question
        counts = np.maximum(is_known.sum(axis=1, keepdims=True), 1)
        gaps = rates - rates.sum(axis=1, keepdims=True, where=is_known) / counts
        variances = np.square(gaps).sum(axis=1, where=is_known) / counts[:, 0]
        priorities: Float64Array = np.sqrt(variances) + self.priority_epsilon
        return questions.draw(priorities, num_questions, rng)


class PolicyDivergence(OffPolicyCorrection):
    """The ratio w times exp(-d), with d the mean |log w| of the trajectory before the update."""

    name = "policy_divergence"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w."""
        return tokens.ratios

    def step_factors(self, log_ratios: Sequence[Float64Array]) -> Sequence[Float32Array]:
        """Return exp(-d) for each token of a trajectory."""
        return [np.full(gaps.size, np.exp(-np.abs(gaps).mean()), dtype=np.float32) for gaps in log_ratios]
