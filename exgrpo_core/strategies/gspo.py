"""GSPO: one ratio a sequence, the geometric mean of its tokens', clipped as PPO clips tokens.

Source: Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv 2507.18071, Eqs. 5 to 7), whose limits are about
3e-4 and 4e-4 (`clip_epsilon`, `clip_epsilon_high`). With `token_mean` aggregation each sequence counts once, as there.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gspo(OffPolicyCorrection):
    """The clipped ratio of the whole sequence at each of its tokens."""

    name: ClassVar[str] = "gspo"
    clip_epsilon: float
    clip_epsilon_high: float | None

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return the clipped sequence ratio of each token."""
        high = self.clip_epsilon if self.clip_epsilon_high is None else self.clip_epsilon_high
        ratios = tokens.sequence_ratios()
        return ratios.clamp(max=1.0 + high).where(tokens.advantages >= 0, ratios.clamp(min=1.0 - self.clip_epsilon))
