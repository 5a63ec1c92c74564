"""P3O: replayed tokens count as much as their ratios, at most the effective sample size of the step's ratios.

Source: Fakoor et al. 2026, "Trust the Batch, On- or Off-Policy: Adaptive Policy Optimization for RL Post-Training"
(arXiv 2605.12380) by its abstract, and its code, github.com/FeynRL-project/FeynRL (`calculate_ess` and
`compute_policy_loss` of algs/P3O/p3o.py): e = (sum of w)^2 / (n * sum of w^2) over n tokens, and a token counts
min(w, e) A log pi, whose first factor is fixed. Differs: e is over the replayed tokens of a step, by the policy before
the update, where the code's is over a micro-batch at each update; fresh tokens have w = 1, do not count in e and keep
their objective, where the code limits them too. Left out: the term (1 - e) KL to the behavior policy, since a
correction weighs advantages and sees no e of the step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.about import About
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO
from exgrpo_core.types import Float32Array, Float64Array, TokenRatios

if TYPE_CHECKING:
    import torch


class P3o(OffPolicyCorrection):
    """The ratio w before the update, at most the effective sample size of the step's ratios over their number."""

    name = "p3o"
    about: ClassVar[About | None] = About(
        "P3O", "2605.12380", "as in ExGRPO", "as in ExGRPO", "effective sample size",
    )  # fmt: skip

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return 1, with the derivative of log pi."""
        return tokens.ratios / tokens.ratios.detach()

    def step_factors(self, log_ratios: Sequence[Float64Array]) -> Sequence[Float32Array]:
        """Return min(w, e) of each token."""
        bounded = [np.clip(values, -MAX_LOG_RATIO, MAX_LOG_RATIO) for values in log_ratios]
        ratios = np.exp(np.concatenate(bounded))
        limit = ratios.sum() ** 2 / (ratios.size * np.square(ratios).sum())
        return [np.minimum(np.exp(values), limit).astype(np.float32) for values in bounded]
