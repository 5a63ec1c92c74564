"""CISPO: the clipped ratio weighs the gradient of log pi, so no token loses it.

Source: MiniMax 2025, "MiniMax-M1" (arXiv 2506.13585, Eqs. 4 and 5): sg(clip(w, 1 - eps, 1 + eps_high)) A log pi. Both
limits are here, as in Eq. 5 and in verl's loss; the paper trained without a lower one, as TRL's loss does, which is
`clip_epsilon: 0.999`. Assumed: an upper limit of 1.28, as the paper prints no number. Its mean over a group's tokens,
dynamic sampling and length penalty are not here, and its advantages over their deviation are `normalize_by_std`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.config import clip_limits
from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.strategies.clip import Clip

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Cispo(Clip):
    """clip(w) in value and in its derivative by log pi."""

    name: ClassVar[str] = "cispo"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return clip(w), with the derivative clip(w) by log pi: w / sg(w) is 1 and has w's relative derivative."""
        fixed = tokens.ratios.detach()
        return tokens.ratios / fixed * fixed.clamp(*clip_limits(self.clip_epsilon, self.clip_epsilon_high))
