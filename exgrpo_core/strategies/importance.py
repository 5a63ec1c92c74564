"""Importance weights of tokens: plain, truncated, masked.

Source: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561) and Yao et al. 2025 ("Your efficient RL framework secretly
brings you off-policy RL training") for truncation; the masked form gives tokens outside of [1/limit, limit] no
gradient, as "rejection" in RL libraries. `ratio_limit` is assumed to be 2, verl's default.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection

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
    ratio_limit: float = 2.0

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return min(w, limit), whose derivative by log pi is itself."""
        fixed = tokens.ratios.detach()
        return tokens.ratios / fixed * fixed.clamp(max=self.ratio_limit)


@dataclass(frozen=True, slots=True)
class Masked(OffPolicyCorrection):
    """The ratio w where it is within the limits, else 0."""

    name: ClassVar[str] = "masked"
    ratio_limit: float = 2.0

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w or 0."""
        is_outside = (tokens.ratios > self.ratio_limit) | (tokens.ratios < 1.0 / self.ratio_limit)
        return tokens.ratios.masked_fill(is_outside, 0.0)
