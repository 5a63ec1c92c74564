import dataclasses
import math

import numpy as np
import pytest
import torch

from exgrpo_core.policy_optimization.gradient_weight import gradient_weight_metrics, gradient_weights
from exgrpo_core.policy_optimization.importance import shape_ratio
from exgrpo_core.strategies.exgrpo import PolicyShaping
from tests.exgrpo_core.builders import group, replay, small_config

SHAPING = PolicyShaping(0.1)


def replayed(rollout_step, ratios):
    logs = np.log(ratios)
    stored = replay(0, range(len(ratios)), np.full(len(ratios), -1.0), logs - 1.0)
    aged = dataclasses.replace(stored, experience=stored.experience._replace(rollout_step=rollout_step))
    return group(0, [1.0, 0.0, 0.0], aged)


def test_weight_of_a_shaped_token_is_beta_w_over_the_square_of_w_plus_beta():
    weights = gradient_weights(np.log([1.0, 0.1, 10.0]), 0.1)
    assert weights == pytest.approx([0.1 / 1.21, 0.01 / 0.04, 1.0 / 102.01])


def test_weight_is_the_gradient_that_the_loss_gives_to_a_log_prob():
    log_ratios = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64, requires_grad=True)
    shape_ratio(log_ratios.exp(), 0.1).sum().backward()
    assert gradient_weights(log_ratios.detach().numpy(), 0.1) == pytest.approx(log_ratios.grad.numpy())


def test_weight_without_shaping_is_the_ratio():
    assert gradient_weights(np.log([0.5, 3.0]), None) == pytest.approx([0.5, 3.0])


def test_metrics_have_mean_quantiles_and_both_halves_by_age():
    groups = [replayed(1, [1.0, 1.0]), replayed(9, [0.1, 0.1]), group(2, [0.0, 0.0, 0.0, 0.0])]
    metrics = gradient_weight_metrics(groups, small_config(), SHAPING)
    at_one, at_beta = 0.1 / 1.21, 0.25
    assert metrics["replay/gradient_weight_mean"] == pytest.approx((at_one + at_beta) / 2)
    assert metrics["replay/gradient_weight_median"] == pytest.approx((at_one + at_beta) / 2)
    assert metrics["replay/gradient_weight_p10"] == pytest.approx(at_one)
    assert metrics["replay/gradient_weight_p90"] == pytest.approx(at_beta)
    assert metrics["replay/gradient_weight_young"] == pytest.approx(at_beta)
    assert metrics["replay/gradient_weight_old"] == pytest.approx(at_one)


def test_trajectories_of_one_age_are_not_split():
    metrics = gradient_weight_metrics([replayed(4, [1.0]), replayed(4, [0.1])], small_config(), SHAPING)
    assert "replay/gradient_weight_young" not in metrics


def test_ratio_is_one_where_importance_correction_is_off():
    metrics = gradient_weight_metrics([replayed(1, [0.1, 7.0])], small_config(corrects_importance=False), SHAPING)
    assert metrics["replay/gradient_weight_mean"] == pytest.approx(0.1 / 1.21)


def test_huge_ratios_stay_finite():
    assert math.isfinite(gradient_weights(np.array([1e4]), None)[0])


def test_on_policy_steps_have_no_weights():
    assert gradient_weight_metrics([group(0, [1.0, 0.0, 0.0, 0.0])], small_config(), SHAPING) == {}
