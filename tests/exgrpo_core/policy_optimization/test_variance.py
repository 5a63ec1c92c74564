import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.policy_optimization.advantages import assign_advantages
from exgrpo_core.policy_optimization.variance import MAX_LOG_WEIGHT, variance_bounds, variance_metrics
from tests.exgrpo_core.builders import group, replay, small_config

HALF = math.log(0.5)
NUMBERS = st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6)


def mixed_group(behavior, old, rewards=(1.0, 0.0, 0.0)):
    return group(0, rewards, replay(0, [5, 6], behavior, old))


def metrics_of(groups, **changes):
    config = small_config(**changes)
    assign_advantages(groups, config)
    return variance_metrics(groups, config)


def test_bounds_are_those_of_the_proposition():
    bounds = variance_bounds(np.array([0.5, 2.0]), np.array([4.0, 1.0]), np.array([1.0, 3.0]), num_rollouts=4)
    # E[W^2 U^2] = (0.25 * 4 + 4 * 1) / 2 = 2.5, M^2 E[U*^2] = 4 * 2.5 = 10, E[U^2] = 2, 2 / K^2 = 1/8
    assert bounds.general == pytest.approx((2.5 + 9 * 2) / 8)
    assert bounds.general_loose == pytest.approx((10 + 9 * 2) / 8)
    assert bounds.independent == pytest.approx((2.5 + 3 * 2) / 8)
    assert bounds.independent_loose == pytest.approx((10 + 3 * 2) / 8)


@given(NUMBERS, NUMBERS, st.integers(2, 16))
def test_loose_bounds_are_never_below_the_others_and_independence_never_raises_one(weights, squares, num_rollouts):
    replayed = np.resize(np.array(squares), len(weights))
    bounds = variance_bounds(np.array(weights), replayed, np.array(squares), num_rollouts)
    assert bounds.general <= bounds.general_loose * (1 + 1e-9)
    assert bounds.independent <= bounds.independent_loose * (1 + 1e-9)
    assert bounds.independent <= bounds.general * (1 + 1e-9)


def test_weights_are_products_over_the_tokens_of_the_policy_now_over_the_policy_then():
    groups = [mixed_group([-1.0, -1.0], [-1.0 + HALF, -1.0 + HALF]), mixed_group([-1.0, -1.0], [-1.0, -1.0])]
    metrics = metrics_of(groups)
    assert metrics["variance/weight_mean"] == pytest.approx((0.25 + 1.0) / 2)
    assert metrics["variance/weight_max"] == pytest.approx(1.0)
    assert metrics["variance/shaped_weight_mean"] == pytest.approx((0.25 / 0.35 + 1.0 / 1.1) / 2)


def test_gradients_are_those_of_the_sampled_tokens_logits():
    metrics = metrics_of([mixed_group([HALF, HALF], [HALF, HALF])])
    # Rewards 1, 0, 0 and 1: every advantage squared is 1/4; the fresh rollouts have two tokens of log-prob -0.5.
    fresh = 0.25 * 2 * (1 - math.exp(-0.5)) ** 2
    replayed = 0.25 * 2 * 0.5**2
    assert metrics["variance/bound_independent"] == pytest.approx(2 / 16 * (replayed + 3 * fresh), rel=1e-6)


def test_without_importance_correction_every_weight_is_one():
    metrics = metrics_of([mixed_group([-1.0, -1.0], [-3.0, -3.0])], corrects_importance=False)
    assert metrics["variance/weight_max"] == 1.0


def test_long_trajectories_do_not_overflow():
    metrics = metrics_of([mixed_group([-400.0, -400.0], [-1.0, -1.0])])
    assert metrics["variance/weight_max"] == pytest.approx(math.exp(MAX_LOG_WEIGHT))


def test_a_step_without_replay_has_no_such_metrics_and_one_without_shaping_no_shaped_weight():
    assert metrics_of([group(0, [1.0, 0.0, 0.0, 0.0])]) == {}
    metrics = metrics_of([mixed_group([-1.0, -1.0], [-1.0, -1.0])], shapes_policy=False)
    assert "variance/shaped_weight_mean" not in metrics
