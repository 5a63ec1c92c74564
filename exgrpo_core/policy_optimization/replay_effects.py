"""What replay does to the update: gradient weights of replayed tokens, and the paper's bounds on the variance.

The objective's derivative by log pi_theta is f'(w) w A-hat on a replayed token and A-hat on a fresh one at w = 1. With
f(w) = w / (w + beta) the weight is beta w / (w + beta)^2: .083 at w = 1 and beta = .1, at most 1/4 (at w = beta).
The weight of another correction is the derivative that torch takes of it.

The bounds are those of Proposition "Variance upper bound". The policy is the one before the update, where pi_theta =
pi_old: W is the weight of a whole replayed trajectory against the policy that wrote it, and fresh rollouts have weight
1. U is the gradient with respect to the logits of the sampled tokens, so |U|^2 = A-hat^2 sum_t (1 - pi_t)^2: all of it
follows from log-probs that the step has anyway, where gradients of the weights would take a backward pass for each
trajectory.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from exgrpo_core.config import POLICY_SHAPING, ExGRPOConfig
from exgrpo_core.methods.protocols import OffPolicyCorrection
from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO, replay_log_ratios
from exgrpo_core.sums import token_sums
from exgrpo_core.types import Float32Array, Float64Array, Replay, RolloutGroup, TokenRatios


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

    Ages split the replayed trajectories at the median step of their rollouts; both halves need at least one trajectory.
    """
    pairs = [pair for group in groups for pair in _replays_with_advantages(group)]
    if not pairs:
        return {}
    replays = [replay for replay, _ in pairs]
    of_replays = [replay_log_ratios(replay, config) for replay in replays]
    if correction.name == POLICY_SHAPING:
        beta = config.shaping_beta if config.shapes_policy else None
        weights = gradient_weights(np.concatenate(of_replays), beta)
    else:
        advantages = [advantage for _, advantage in pairs]
        parts = [differentiated_weights(correction, *item) for item in zip(of_replays, advantages, strict=True)]
        factors = [replay.token_factors for replay in replays]
        weights = np.concatenate(
            [part if one is None else part * one for part, one in zip(parts, factors, strict=True)]
        )
    # np.quantile takes twenty times as long on the few tokens of a small step.
    ranks = np.array((0.1, 0.5, 0.9)) * (weights.size - 1)
    low, median, high = np.interp(ranks, np.arange(weights.size), np.sort(weights))
    metrics = {
        "replay/gradient_weight_mean": float(weights.mean()),
        "replay/gradient_weight_p10": float(low),
        "replay/gradient_weight_median": float(median),
        "replay/gradient_weight_p90": float(high),
    }
    rollout_steps = np.array([replay.experience.rollout_step for replay in replays])
    is_young = rollout_steps > np.median(rollout_steps)
    if is_young.any():
        is_young = np.repeat(is_young, [values.size for values in of_replays])
        metrics["replay/gradient_weight_young"] = float(weights[is_young].mean())
        metrics["replay/gradient_weight_old"] = float(weights[~is_young].mean())
    return metrics


def _replays_with_advantages(group: RolloutGroup) -> list[tuple[Replay, float]]:
    replays = group.replays
    advantages = [0.0] * len(replays) if group.advantages is None else group.advantages[len(group.trajectories) :]
    return list(zip(replays, map(float, advantages), strict=True))


class VarianceBounds(NamedTuple):
    """Bounds on Var(G_exp); the loose ones put the largest weight M in the place of every W."""

    general: float
    """A: holds whatever the dependence within a group."""
    general_loose: float
    """A'."""
    independent: float
    """B: holds for rollouts that are uncorrelated within a group."""
    independent_loose: float
    """B'."""


def variance_metrics(groups: Sequence[RolloutGroup], config: ExGRPOConfig) -> dict[str, float]:
    """Return the metrics `variance/*` of groups of K - 1 rollouts and a replayed trajectory; none without one."""
    size = config.rollouts_per_question
    mixed = [group for group in groups if len(group.replays) == 1 and len(group.trajectories) == size - 1]
    if not mixed:
        return {}
    weights = np.array([_trajectory_weight(group, config) for group in mixed])
    squares = _squared_gradients(mixed).reshape(-1, size)
    bounds = variance_bounds(weights, squares[:, -1], squares[:, :-1], size)
    metrics = {
        "variance/weight_mean": float(weights.mean()),
        "variance/weight_max": float(weights.max()),
        "variance/bound_general": bounds.general,
        "variance/bound_general_loose": bounds.general_loose,
        "variance/bound_independent": bounds.independent,
        "variance/bound_independent_loose": bounds.independent_loose,
    }
    if config.shapes_policy:
        metrics["variance/shaped_weight_mean"] = float((weights / (weights + config.shaping_beta)).mean())
    return metrics


def variance_bounds(
    weights: Float64Array, replayed_squares: Float64Array, fresh_squares: Float64Array, num_rollouts: int
) -> VarianceBounds:
    """Return A, A', B and B' (Proposition "Variance upper bound").

    `weights` and `replayed_squares` are W and |U|^2 of the replayed trajectories, `fresh_squares` |U|^2 of the fresh
    ones next to them, `num_rollouts` is K.
    """
    weighted = float((weights**2 * replayed_squares).mean())
    loose = float(weights.max() ** 2 * replayed_squares.mean())
    fresh = float(fresh_squares.mean())
    num_fresh, factor = num_rollouts - 1, 2.0 / num_rollouts**2
    return VarianceBounds(
        general=factor * (weighted + num_fresh**2 * fresh),
        general_loose=factor * (loose + num_fresh**2 * fresh),
        independent=factor * (weighted + num_fresh * fresh),
        independent_loose=factor * (loose + num_fresh * fresh),
    )


def _trajectory_weight(group: RolloutGroup, config: ExGRPOConfig) -> float:
    """W = prod_t pi_theta / pi_past of the group's replayed trajectory; 1 where importance correction is off."""
    if not config.corrects_importance:
        return 1.0
    [replay] = group.replays
    ratios = replay.old_log_probs.astype(np.float64) - replay.experience.behavior_log_probs
    return float(np.exp(np.clip(ratios.sum(), -MAX_LOG_RATIO, MAX_LOG_RATIO)))


def _squared_gradients(groups: Sequence[RolloutGroup]) -> Float64Array:
    """|U|^2 of all trajectories of the groups, the replayed one last in each."""
    log_probs: list[Float32Array] = []
    for group in groups:
        log_probs += [trajectory.log_probs for trajectory in group.trajectories]
        log_probs += [replay.old_log_probs for replay in group.replays]
    scores = token_sums(log_probs, lambda values: np.square(1.0 - np.exp(values)))
    advantages = np.concatenate([_all_advantages(group) for group in groups], dtype=np.float64)
    squares: Float64Array = np.square(advantages) * scores
    return squares


def _all_advantages(group: RolloutGroup) -> Float32Array:
    return np.zeros(group.num_trajectories, np.float32) if group.advantages is None else group.advantages
