"""GSPO: one ratio a sequence, the geometric mean of its tokens', clipped as PPO clips tokens.

Source: Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv 2507.18071, Eqs. 5 to 7), whose limits are 3e-4
and 4e-4 (section 5.1; `clip_epsilon`, `clip_epsilon_high`), as in TRL's recipe. With `token_mean` aggregation each
sequence counts once, as there. verl's loss, whose fixed ratio varies with one token alone, has the same gradient.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.strategies.clip import Clip

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gspo(Clip):
    """The clipped ratio of the whole sequence at each of its tokens."""

    name: ClassVar[str] = "gspo"

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return the clipped sequence ratio of each token."""
        return self.clipped(tokens.sequence_ratios(), tokens.advantages)
