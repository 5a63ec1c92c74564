"""The quantities of the paper's theory (Proposition "Variance upper bound"), from the groups of one step.

The policy is the one before the update, where pi_theta = pi_old: W is the weight of a whole replayed trajectory
against the policy that wrote it, and fresh rollouts have weight 1. U is the gradient with respect to the logits of the
sampled tokens, so |U|^2 = A-hat^2 sum_t (1 - pi_t)^2: all of it follows from log-probs that the step has anyway, where
gradients of the weights would take a backward pass for each trajectory.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.types import Float32Array, Float64Array, RolloutGroup

MAX_LOG_WEIGHT = 20.0
"""Logarithms of W are held to this many nats, as the loss holds those of its ratios."""


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
    ones beside them, `num_rollouts` is K.
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
    return float(np.exp(np.clip(ratios.sum(), -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)))


def _squared_gradients(groups: Sequence[RolloutGroup]) -> Float64Array:
    """|U|^2 of all trajectories of the groups, the replayed one last in each."""
    log_probs: list[Float32Array] = []
    for group in groups:
        log_probs += [trajectory.log_probs for trajectory in group.trajectories]
        log_probs += [replay.old_log_probs for replay in group.replays]
    lengths = np.array([values.size for values in log_probs])
    gaps = np.square(1.0 - np.exp(np.concatenate(log_probs, dtype=np.float64)))
    scores = np.add.reduceat(gaps, np.cumsum(lengths) - lengths)
    advantages = np.concatenate([_advantages(group) for group in groups], dtype=np.float64)
    squares: Float64Array = np.square(advantages) * scores
    return squares


def _advantages(group: RolloutGroup) -> Float32Array:
    return np.zeros(group.num_trajectories, np.float32) if group.advantages is None else group.advantages
