"""M2PO: replayed tokens whose ratios are furthest from 1 are left out until the second moment of log w is small.

Source: Zheng et al. 2025, "Prosperity before Collapse: How Far Can Off-Policy RL Reach with Stale Data on LLMs?" (arXiv
2510.01161) by its abstract and a review, and AReaL's code and page on M2PO (github.com/inclusionAI/AReaL,
`_get_m2po_loss_mask` in areal/trainer/ppo/actor.py): of the tokens by (log w)^2, largest first, as many lose their
gradient as it takes for the mean of the others to be below a threshold, .04 there; the others count w A. As in AReaL,
w is that of the policy before the update. Differs: the mean is over the replayed tokens of a step, where AReaL's is
over a micro-batch, all of it stale; fresh tokens have w = 1 and are not counted. Not known: whether the paper counts
only tokens whose advantage would move w further from 1, so all count, as in AReaL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exgrpo_core.methods.about import About
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.methods.ranges import Positive
from exgrpo_core.types import Float32Array, Float64Array, TokenRatios

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class M2po(OffPolicyCorrection):
    """The ratio w, and 0 at the tokens that the second moment of the step's log w is too large with."""

    name: ClassVar[str] = "m2po"
    about: ClassVar[About | None] = About(
        "M2PO", "2510.01161", "as in ExGRPO", "as in ExGRPO", "second moment bounded",
    )  # fmt: skip
    moment_limit: Positive = 0.04
    """The mean of (log w)^2 over the tokens that count is below it."""

    def weights(self, tokens: TokenRatios) -> "torch.Tensor":
        """Return w."""
        return tokens.ratios

    def step_factors(self, log_ratios: Sequence[Float64Array]) -> Sequence[Float32Array]:
        """Return 1 for each token that counts, else 0; one token counts at least."""
        squares = np.square(np.concatenate(log_ratios))
        smallest_first = np.argsort(squares, kind="stable")
        means = np.cumsum(squares[smallest_first]) / np.arange(1, squares.size + 1)
        num_counted = max(1, int(np.count_nonzero(means < self.moment_limit)))
        factors = np.zeros(squares.size, dtype=np.float32)
        factors[smallest_first[:num_counted]] = 1.0
        return np.split(factors, np.cumsum([values.size for values in log_ratios])[:-1])
