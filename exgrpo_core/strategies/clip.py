"""PPO's clipped ratio, for replayed tokens too, and clip-higher.

Source: Schulman et al. 2017 (arXiv 1707.06347, Eq. 7); Yu et al. 2025 (DAPO, Eq. 10) for the upper limit of its own.
min(w A, clip(w) A) is A times min(w, 1 + eps_high) where A is positive, max(w, 1 - eps) where it is negative.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
        high = self.clip_epsilon if self.clip_epsilon_high is None else self.clip_epsilon_high
        from_above = tokens.ratios.clamp(max=1.0 + high)
        return from_above.where(tokens.advantages >= 0, tokens.ratios.clamp(min=1.0 - self.clip_epsilon))
