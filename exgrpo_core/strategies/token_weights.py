"""Token weights without PPO's clipping: importance weights (plain, truncated, masked) and supervised learning.

Importance weights. Source: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561) and Yao et al. 2025 ("Your efficient RL
framework secretly brings you off-policy RL training") for truncation; the masked form gives tokens outside of
[1/limit, limit] no gradient, as "rejection" in RL libraries. `ratio_limit` is assumed to be 2, verl's default.

Supervised learning. Source: the outer loop of Zelikman et al. 2022, "STaR" (arXiv 2203.14465, section 3.1), which
fine-tunes on sampled answers that are correct. Assumed: it learns from each batch at once, not from the base model
in every round again; questions whose answers are all correct count nothing, since their advantages are 0, all that is
known here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.methods.ranges import Positive, Range
from exgrpo_core.types import TokenRatios

if TYPE_CHECKING:
    import torch


class Token(OffPolicyCorrection):
    """The ratio w itself."""

    name = "token"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w."""
        return tokens.ratios


@dataclass(frozen=True, slots=True)
class Truncated(OffPolicyCorrection):
    """The gradient of log pi times min(w, limit)."""

    name: ClassVar[str] = "truncated"
    ratio_limit: Positive = 2.0

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return min(w, limit), whose derivative by log pi is itself."""
        fixed = tokens.ratios.detach()
        return tokens.ratios / fixed * fixed.clamp(max=self.ratio_limit)


@dataclass(frozen=True, slots=True)
class Masked(OffPolicyCorrection):
    """The ratio w where it is within the limits, else 0."""

    name: ClassVar[str] = "masked"
    ratio_limit: Annotated[float, Range(above=1)] = 2.0

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w or 0."""
        is_outside = (tokens.ratios > self.ratio_limit) | (tokens.ratios < 1.0 / self.ratio_limit)
        return tokens.ratios.masked_fill(is_outside, 0.0)


class Supervised(OffPolicyCorrection):
    """Imitates successes: the gradient of log pi, whatever their advantage and ratio."""

    name = "supervised"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w / sg(w) over the advantage, which it cancels, where that is above 0; else 0."""
        is_success = tokens.advantages > 0
        likelihood = tokens.ratios / tokens.ratios.detach()
        return (likelihood / tokens.advantages.where(is_success, 1.0)).where(is_success, 0.0)
