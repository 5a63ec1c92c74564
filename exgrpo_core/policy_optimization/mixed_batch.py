"""Mixed groups to update mini-batches: each holds the share rho of whole experiential groups (Eq. ExGRPO)."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from exgrpo_core.types import Float32Array, Int32Array, RolloutGroup


class LossAggregation(StrEnum):
    """How token terms of one trajectory add up."""

    MAX_LENGTH = "max_length"
    """Sum over tokens / max response length (Dr.GRPO, the paper's choice)."""
    TOKEN_MEAN = "token_mean"
    """Mean over the trajectory's own tokens (GRPO, Eq. 3's 1/|o|)."""


@dataclass(frozen=True, slots=True)
class ObjectiveSettings:
    """What of the configuration the loss of this step needs; `clips_fresh` follows the latch."""

    clips_fresh: bool
    clip_epsilon: float
    shaping_beta: float | None
    aggregation: LossAggregation
    max_response_tokens: int
    loss_scale: float
    entropy_coefficient: float
    kl_coefficient: float


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One trajectory as the loss sees it.

    `behavior_log_probs` (T,) are log pi of whoever wrote it: pi_old for a fresh row, pi_past for a replayed one
    (or pi_old where importance correction is off).
    """

    prompt_ids: Int32Array
    token_ids: Int32Array
    behavior_log_probs: Float32Array
    advantage: float
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The rows of one optimizer step: whole groups, `num_trajectories` of them all told."""

    rows: list[TrainingRow]
    num_experiential_groups: int

    @property
    def num_trajectories(self) -> int:
        """Trajectories over which the loss averages, zero-advantage ones included."""
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Response tokens over which the entropy bonus averages."""
        return sum(row.token_ids.size for row in self.rows)
