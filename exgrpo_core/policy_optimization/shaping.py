"""Importance ratios and policy shaping."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this many nats, so that no ratio overflows float32."""


def importance_ratios(log_probs: "torch.Tensor", behavior_log_probs: "torch.Tensor") -> "torch.Tensor":
    """Return w_t = pi_theta / pi_behavior per token: exp of the difference of log-probs, of any one shape.

    Raises:
        ValueError: The shapes differ.
    """
    if log_probs.shape != behavior_log_probs.shape:
        raise ValueError(
            f"importance_ratios: expected equal shapes, got {tuple(log_probs.shape)} and "
            f"{tuple(behavior_log_probs.shape)}."
        )
    return (log_probs - behavior_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def shape_ratio(ratio: "torch.Tensor", beta: float) -> "torch.Tensor":
    """Return f(w) = w / (w + beta), in [0, 1): large for rare tokens, saturating for likely ones (section 4.2).

    Raises:
        ValueError: `beta` is not above 0.
    """
    if beta <= 0.0:
        raise ValueError(f"beta: expected a number above 0, got {beta}.")
    return ratio / (ratio + beta)
