"""Gradient weights of replayed tokens and the bounds of the paper's proposition, with numbers computed by hand."""

import dataclasses
import math

import numpy as np
import pytest

from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages
from exgrpo_core.policy_optimization.replay_effects import (
    gradient_weight_metrics,
    gradient_weights,
    variance_bounds,
    variance_metrics,
)
from exgrpo_core.strategies.exgrpo import PolicyShaping
from tests.exgrpo_core.builders import group, replay, small_config

HALF = math.log(0.5)


def replayed(rollout_step, ratios):
    logs = np.log(ratios)
    stored = replay(0, range(len(ratios)), np.full(len(ratios), -1.0), logs - 1.0)
    aged = dataclasses.replace(stored, experience=stored.experience._replace(rollout_step=rollout_step))
    return group(0, [1.0, 0.0, 0.0], aged)


def weights_of(groups, **changes):
    metrics = gradient_weight_metrics(groups, small_config(**changes), PolicyShaping(0.1))
    return {name.removeprefix("replay/gradient_weight_"): value for name, value in metrics.items()}


def test_weight_is_beta_w_over_the_square_of_w_plus_beta_or_the_ratio_without_shaping():
    weights = gradient_weights(np.log([1.0, 0.1, 10.0]), 0.1)
    assert weights == pytest.approx([0.1 / 1.21, 0.01 / 0.04, 1.0 / 102.01])
    assert gradient_weights(np.log([0.5, 3.0]), None) == pytest.approx([0.5, 3.0])
    assert math.isfinite(gradient_weights(np.array([1e4]), None)[0])


def test_metrics_have_mean_quantiles_and_both_halves_by_age():
    at_one, at_beta = 0.1 / 1.21, 0.25
    assert weights_of([replayed(1, [1.0, 1.0]), replayed(9, [0.1, 0.1]), group(2, [0.0] * 4)]) == pytest.approx(
        {
            "mean": (at_one + at_beta) / 2, "median": (at_one + at_beta) / 2, "p10": at_one, "p90": at_beta,
            "young": at_beta, "old": at_one,
        }
    )  # fmt: skip
    assert "young" not in weights_of([replayed(4, [1.0]), replayed(4, [0.1])])
    assert weights_of([replayed(1, [0.1, 7.0])], corrects_importance=False)["mean"] == pytest.approx(at_one)
    assert weights_of([group(0, [1.0, 0.0, 0.0, 0.0])]) == {}


def mixed_group(behavior, old):
    return group(0, (1.0, 0.0, 0.0), replay(0, [5, 6], behavior, old))


def variance_of(groups, **changes):
    config = small_config(**changes)
    assign_advantages(groups, config)
    return {name.removeprefix("variance/"): value for name, value in variance_metrics(groups, config).items()}


def test_bounds_are_those_of_the_proposition():
    bounds = variance_bounds(np.array([0.5, 2.0]), np.array([4.0, 1.0]), np.array([1.0, 3.0]), num_rollouts=4)
    # E[W^2 U^2] = (0.25 * 4 + 4 * 1) / 2 = 2.5, M^2 E[U*^2] = 4 * 2.5 = 10, E[U^2] = 2, 2 / K^2 = 1/8
    assert bounds == pytest.approx(((2.5 + 9 * 2) / 8, (10 + 9 * 2) / 8, (2.5 + 3 * 2) / 8, (10 + 3 * 2) / 8))
    assert bounds._fields == ("general", "general_loose", "independent", "independent_loose")


def test_weights_of_trajectories_are_products_over_tokens_of_the_policy_now_over_the_policy_then():
    groups = [mixed_group([-1.0, -1.0], [-1.0 + HALF, -1.0 + HALF]), mixed_group([-1.0, -1.0], [-1.0, -1.0])]
    metrics = variance_of(groups)
    assert metrics["weight_mean"] == pytest.approx((0.25 + 1.0) / 2)
    assert metrics["weight_max"] == pytest.approx(1.0)
    assert metrics["shaped_weight_mean"] == pytest.approx((0.25 / 0.35 + 1.0 / 1.1) / 2)
    assert variance_of([mixed_group([-1.0, -1.0], [-3.0, -3.0])], corrects_importance=False)["weight_max"] == 1.0
    huge = variance_of([mixed_group([-400.0, -400.0], [-1.0, -1.0])], shapes_policy=False)
    assert huge["weight_max"] == pytest.approx(math.exp(MAX_LOG_RATIO))
    assert "shaped_weight_mean" not in huge
    assert variance_of([group(0, [1.0, 0.0, 0.0, 0.0])]) == {}


def test_gradients_are_those_of_the_sampled_tokens_logits():
    metrics = variance_of([mixed_group([HALF, HALF], [HALF, HALF])])
    # Rewards 1, 0, 0 and 1: every advantage squared is 1/4; the fresh rollouts have two tokens of log-prob -0.5.
    fresh = 0.25 * 2 * (1 - math.exp(-0.5)) ** 2
    assert metrics["bound_independent"] == pytest.approx(2 / 16 * (0.25 * 2 * 0.5**2 + 3 * fresh), rel=1e-6)
