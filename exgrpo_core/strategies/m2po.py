"""M2PO: the tokens that are farthest from the policy get no gradient, until the second moment of log w is small.

Source: Zheng et al. 2025 (arXiv 2510.01161), as AReaL documents it: tokens are masked until the mean of (log w)^2 over
the others is at most a limit; the rest has the plain ratio. Differs: the mean is over a micro-batch, where the paper's
is over the batch. As `off_policy_correction` only, fresh tokens count in the mean, and their log w is near 0, so set
`fresh_objective: m2po` and `clipping: always` too. Assumed: the limit .04; the largest are masked first; the signs of
ratio and advantage do not matter.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exgrpo_core.methods.protocols import OffPolicyCorrection, TokenRatios

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class M2po(OffPolicyCorrection):
    """The ratio w, and 0 for tokens of the largest (log w)^2, until the mean of the others is within the limit."""

    name: ClassVar[str] = "m2po"
    second_moment_limit: float = 0.04

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w or 0."""
        squares = tokens.ratios.detach().log().square()
        smallest_first = squares[tokens.mask].sort().values
        means = smallest_first.cumsum(0) / smallest_first.new_ones(smallest_first.shape).cumsum(0)
        num_kept = int((means <= self.second_moment_limit).sum())
        if num_kept == smallest_first.numel():
            return tokens.ratios
        return tokens.ratios.masked_fill(squares >= smallest_first[num_kept], 0.0)
