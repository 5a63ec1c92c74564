"""Clipped ratios: PPO's, CISPO's and GSPO's.

PPO with clip-higher. Source: Schulman et al. 2017 (arXiv 1707.06347, Eq. 7); Yu et al. 2025 (DAPO, Eq. 10) for the
upper limit of its own. min(w A, clip(w) A) is A times min(w, 1 + eps_high) where A is positive, max(w, 1 - eps) where
it is negative.

CISPO. Source: MiniMax 2025, "MiniMax-M1" (arXiv 2506.13585, Eqs. 4 and 5): sg(clip(w, 1 - eps, 1 + eps_high)) A log pi.
Both limits are here, as in Eq. 5 and in verl's loss; the paper trained without a lower one, as TRL's loss does, which
is `clip_epsilon: 0.999`. Assumed: an upper limit of 1.28, as the paper prints no number. Its mean over a group's
tokens, dynamic sampling and length penalty are not here, and its advantages over their deviation are
`normalize_by_std`.

GSPO. Source: Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv 2507.18071, Eqs. 5 to 7), whose limits are
3e-4 and 4e-4 (section 5.1; `clip_epsilon`, `clip_epsilon_high`), as in TRL's recipe. With `token_mean` aggregation each
sequence counts once, as there. verl's loss, whose fixed ratio varies with one token alone, has the same gradient.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.config import clip_limits
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.types import TokenRatios

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


@dataclass(frozen=True, slots=True)
class Cispo(Clip):
    """clip(w) in value and in its derivative by log pi."""

    name: ClassVar[str] = "cispo"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return clip(w), with the derivative clip(w) by log pi: w / sg(w) is 1 and has w's relative derivative."""
        fixed = tokens.ratios.detach()
        return tokens.ratios / fixed * fixed.clamp(*clip_limits(self.clip_epsilon, self.clip_epsilon_high))


@dataclass(frozen=True, slots=True)
class Gspo(Clip):
    """The clipped ratio of the whole sequence at each of its tokens."""

    name: ClassVar[str] = "gspo"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return the clipped sequence ratio of each token."""
        return self.clipped(tokens.sequence_ratios(), tokens.advantages)
