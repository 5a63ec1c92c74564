"""PPO's clipped ratio, for replayed tokens too, and clip-higher.

Source: Schulman et al. 2017 (arXiv 1707.06347, Eq. 7); Yu et al. 2025 (DAPO, Eq. 10) for the upper limit of its own.
min(w A, clip(w) A) is A times min(w, 1 + eps_high) where A is positive, max(w, 1 - eps) where it is negative.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.config import clip_limits
from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Clip(OffPolicyCorrection):
    """Ratios within 1 - eps and 1 + eps_high, where going further would raise the objective."""

    name: ClassVar[str] = "clip"
    clip_epsilon: float
    clip_epsilon_high: float | None

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return the clipped ratio of each token."""
        return self.clipped(tokens.ratios, tokens.advantages)

    def clipped(self, ratios: "torch.Tensor", advantages: "torch.Tensor") -> "torch.Tensor":
        """Return ratios within the limit that their advantage's sign has."""
        low, high = clip_limits(self.clip_epsilon, self.clip_epsilon_high)
        return ratios.clamp(max=high).where(advantages >= 0, ratios.clamp(min=low))
