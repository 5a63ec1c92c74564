"""How much the update learns from a replayed token: its gradient weight against a fresh token's, which is 1.

The objective's derivative by log pi_theta is f'(w) w A-hat on a replayed token and A-hat on a fresh one at w = 1. With
f(w) = w / (w + beta) the weight is beta w / (w + beta)^2: .083 at w = 1 and beta = .1, at most 1/4 (at w = beta).
The weight of another correction is the derivative that torch takes of it.
"""

from collections.abc import Sequence

import numpy as np
import torch

from exgrpo_core.config import POLICY_SHAPING, ExGRPOConfig
from exgrpo_core.methods.columns import TokenRatios
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO
from exgrpo_core.types import Float64Array, Replay, RolloutGroup


def gradient_weights(log_ratios: Float64Array, shaping_beta: float | None) -> Float64Array:
    """Return f'(w) w of any shape for log w = `log_ratios`; w itself where nothing is shaped."""
    ratios: Float64Array = np.exp(np.clip(log_ratios, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    if shaping_beta is None:
        return ratios
    weights: Float64Array = shaping_beta * ratios / np.square(ratios + shaping_beta)
    return weights


def differentiated_weights(correction: OffPolicyCorrection, log_ratios: Float64Array, advantage: float) -> Float64Array:
    """Return the derivative of a trajectory's weights (T,) by log w, for any correction."""
    logs = torch.from_numpy(np.clip(log_ratios, -MAX_LOG_RATIO, MAX_LOG_RATIO)).requires_grad_()
    advantages, mask = torch.full_like(logs, advantage), torch.ones_like(logs, dtype=torch.bool)
    weights = correction.weights(TokenRatios(logs.exp(), advantages, mask, torch.zeros_like(logs, dtype=torch.int64)))
    torch.autograd.backward(weights.sum())
    derivative: Float64Array = np.zeros(logs.shape) if logs.grad is None else logs.grad.numpy()
    return derivative


def gradient_weight_metrics(
    groups: Sequence[RolloutGroup], config: ExGRPOConfig, correction: OffPolicyCorrection
) -> dict[str, float]:
    """Return the metrics `replay/gradient_weight_*` before the update; none without a replayed trajectory.

    Ages split the replayed trajectories at their median step of birth; both halves need at least one trajectory.
    """
    pairs = [pair for group in groups for pair in _replays_with_advantages(group)]
    if not pairs:
        return {}
    replays = [replay for replay, _ in pairs]
    log_ratios = [_log_ratios(replay, config) for replay in replays]
    if correction.name == POLICY_SHAPING:
        beta = config.shaping_beta if config.shapes_policy else None
        weights = gradient_weights(np.concatenate(log_ratios), beta)
    else:
        advantages = [advantage for _, advantage in pairs]
        weights = np.concatenate(
            [differentiated_weights(correction, *item) for item in zip(log_ratios, advantages, strict=True)]
        )
    low, median, high = np.quantile(weights, (0.1, 0.5, 0.9))
    metrics = {
        "replay/gradient_weight_mean": float(weights.mean()),
        "replay/gradient_weight_p10": float(low),
        "replay/gradient_weight_median": float(median),
        "replay/gradient_weight_p90": float(high),
    }
    born = np.array([replay.experience.rollout_step for replay in replays])
    is_young = born > np.median(born)
    if is_young.any():
        is_young = np.repeat(is_young, [values.size for values in log_ratios])
        metrics["replay/gradient_weight_young"] = float(weights[is_young].mean())
        metrics["replay/gradient_weight_old"] = float(weights[~is_young].mean())
    return metrics


def _replays_with_advantages(group: RolloutGroup) -> list[tuple[Replay, float]]:
    replays = group.replays
    advantages = [0.0] * len(replays) if group.advantages is None else group.advantages[len(group.trajectories) :]
    return list(zip(replays, map(float, advantages), strict=True))


def _log_ratios(replay: Replay, config: ExGRPOConfig) -> Float64Array:
    """Return log w (T,) of one replayed trajectory; 0 where importance correction is off."""
    old = replay.old_log_probs.astype(np.float64)
    behavior = replay.experience.behavior_log_probs if config.corrects_importance else replay.old_log_probs
    log_ratios: Float64Array = old - behavior
    return log_ratios
