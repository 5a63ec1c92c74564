"""Theorem 1 on a policy small enough to enumerate: two tokens of three symbols, nine trajectories."""

import itertools

import numpy as np
import torch

from exgrpo_core import group_advantages, importance_ratios

VOCABULARY = 3


def trajectory_log_probs(logits):
    """Per-token log-probs of every trajectory; logits (V + 1, V): first token, then one row a first token."""
    table = torch.log_softmax(logits, -1)
    pairs = itertools.product(range(VOCABULARY), repeat=2)
    return {(a, b): torch.stack([table[0, a], table[1 + a, b]]) for a, b in pairs}


def reward(trajectory):
    return float(sum(trajectory) == 2)


def test_exact_importance_weights_leave_the_expected_gradient_unchanged():
    generator = torch.Generator().manual_seed(0)
    current = torch.randn(VOCABULARY + 1, VOCABULARY, generator=generator, dtype=torch.float64, requires_grad=True)
    past = torch.randn(VOCABULARY + 1, VOCABULARY, generator=generator, dtype=torch.float64)
    others = [1.0, 0.0, 0.0]  # rewards of the K - 1 fresh rollouts, conditioned on
    now, then = trajectory_log_probs(current), trajectory_log_probs(past)

    def score_gradient(trajectory):
        advantage = float(group_advantages(np.array([*others, reward(trajectory)]))[-1])
        (gradient,) = torch.autograd.grad(now[trajectory].sum(), current, retain_graph=True)
        return advantage * gradient

    replayed = sum(
        then[o].sum().exp() * importance_ratios(now[o].detach(), then[o]).prod() * score_gradient(o) for o in now
    )
    on_policy = sum(now[o].sum().exp().detach() * score_gradient(o) for o in now)
    torch.testing.assert_close(replayed, on_policy, rtol=0, atol=1e-6)
    uncorrected = sum(then[o].sum().exp() * score_gradient(o) for o in now)
    assert not torch.allclose(uncorrected, on_policy, atol=1e-3)
