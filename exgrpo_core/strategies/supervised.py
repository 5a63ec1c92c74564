"""Supervised learning on successes: the log-prob of every rewarded answer is raised alike, failures count nothing.

Source: the outer loop of Zelikman et al. 2022, "STaR" (arXiv 2203.14465, section 3.1), which fine-tunes on sampled
answers that are right. Assumed: it learns at once from each batch, not from the base model anew in every round;
questions whose answers are all right count nothing, since their advantages are 0, which is all that is known here.
"""

from typing import TYPE_CHECKING

from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection

if TYPE_CHECKING:
    import torch


class Supervised(OffPolicyCorrection):
    """Imitates successes: the gradient of log pi, whatever their advantage and ratio."""

    name = "supervised"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w / sg(w) over the advantage, which it cancels, where that is above 0; else 0."""
        is_success = tokens.advantages > 0
        likelihood = tokens.ratios / tokens.ratios.detach()
        return (likelihood / tokens.advantages.where(is_success, 1.0)).where(is_success, 0.0)
