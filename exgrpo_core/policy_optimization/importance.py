"""Importance ratios: of replayed tokens with their shaping, and of fresh tokens where the sampler is another program.

A sampler's probabilities may differ from the training model's, as vLLM's do from FSDP's. A rollout is drawn from the
sampler's distribution mu, while its gradient is that of the training model's pi_old. Each fresh token's advantage is
weighted by c = pi_old / mu, truncated from above (Espeholt et al. 2018, V-trace; "truncated importance sampling" in RL
libraries) or set to 0 outside of a range (rejection). The embedded engine samples with the model that it trains, so it
has nothing to correct.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from exgrpo_core.config import ExGRPOConfig, SamplerCorrection
from exgrpo_core.types import Float32Array, Float64Array, Replay, RolloutGroup, Trajectory

if TYPE_CHECKING:
    import torch


MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this many nats, so that no ratio overflows float32."""


def importance_ratios(log_probs: "torch.Tensor", behavior_log_probs: "torch.Tensor") -> "torch.Tensor":
    """Return w_t = pi_theta / pi_behavior per token: exp of the difference of log-probs, of any one shape."""
    return (log_probs - behavior_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def shape_ratio(ratio: "torch.Tensor", beta: float) -> "torch.Tensor":
    """Return f(w) = w / (w + beta), in [0, 1): large for rare tokens, saturating for likely ones (section 4.2)."""
    return ratio / (ratio + beta)


def replay_log_ratios(replay: Replay, config: ExGRPOConfig) -> Float64Array:
    """Return log w (T,) of one replayed trajectory before the update; 0 where importance correction is off."""
    old = replay.old_log_probs.astype(np.float64)
    behavior = replay.experience.behavior_log_probs if config.corrects_importance else replay.old_log_probs
    gaps: Float64Array = old - behavior
    return gaps


def sampler_weights(trajectory: Trajectory, config: ExGRPOConfig) -> Float32Array | None:
    """Return c (T,) of a fresh trajectory's tokens; None where nothing is corrected or the sampler is the trainer."""
    if trajectory.sampler_log_probs is None or config.sampler_correction is SamplerCorrection.NONE:
        return None
    limit = math.log(config.sampler_ratio_limit)
    gaps = trajectory.log_probs.astype(np.float64) - trajectory.sampler_log_probs
    weights: Float32Array = np.exp(np.minimum(gaps, limit)).astype(np.float32)
    if config.sampler_correction is SamplerCorrection.REJECT:
        weights[np.abs(gaps) > limit] = 0.0
    return weights


def stored_log_probs(trajectory: Trajectory, config: ExGRPOConfig) -> Float32Array:
    """Return the behavior log-probs (T,) to store with a success: log pi_old - log c.

    Replay's ratio against them, pi_theta / pi_old times c, is the one against the sampler, within the limit. Rejected
    tokens are stored at the end of the range that they left.
    """
    weights = sampler_weights(trajectory, config)
    if weights is None or trajectory.sampler_log_probs is None:
        return trajectory.log_probs
    limit = np.float32(math.log(config.sampler_ratio_limit))
    behavior = np.maximum(trajectory.sampler_log_probs, trajectory.log_probs - limit)
    if config.sampler_correction is SamplerCorrection.REJECT:
        behavior = np.minimum(behavior, trajectory.log_probs + limit)
    stored: Float32Array = np.minimum(behavior, np.float32(0.0))
    return stored


def sampler_metrics(groups: Sequence[RolloutGroup], config: ExGRPOConfig) -> dict[str, float]:
    """Return the mean weight of a step's fresh tokens and the share that was truncated or rejected, if any was."""
    if config.sampler_correction is SamplerCorrection.NONE:
        return {}
    corrected = [(item, sampler_weights(item, config)) for group in groups for item in group.trajectories]
    weights = [weight for _, weight in corrected if weight is not None]
    if not weights:
        return {}
    gaps = np.concatenate(
        [item.log_probs - item.sampler_log_probs for item, _ in corrected if item.sampler_log_probs is not None]
    )
    limit = math.log(config.sampler_ratio_limit)
    is_rejecting = config.sampler_correction is SamplerCorrection.REJECT
    is_limited = np.abs(gaps) > limit if is_rejecting else gaps > limit
    return {
        "generator/weight_mean": float(np.concatenate(weights).mean(dtype=np.float64)),
        "generator/limited_share": float(is_limited.mean()),
    }
