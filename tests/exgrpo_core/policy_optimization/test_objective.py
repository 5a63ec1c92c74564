import dataclasses
import math

import pytest
import torch

from exgrpo_core import exgrpo_loss, importance_ratios, shape_ratio
from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.objective import LossInputs, MiniBatchSizes, summarize_sums
from exgrpo_core.strategies.exgrpo import PolicyShaping

SETTINGS = dataclasses.replace(
    build_objective(ExGRPOConfig(entropy_coefficient=0.0), is_replay_open=True), max_response_tokens=10
)
UNSHAPED = PolicyShaping(0.1, shapes_policy=False)


def packed(log_probs, behavior, advantages, is_replayed, index=None, **extra):
    size = len(log_probs)
    return LossInputs(
        log_probs=torch.as_tensor(log_probs, dtype=torch.float64),
        behavior_log_probs=torch.as_tensor(behavior, dtype=torch.float64),
        advantages=torch.as_tensor(advantages, dtype=torch.float64),
        is_replayed=torch.as_tensor(is_replayed),
        response_mask=torch.ones(size, dtype=torch.bool),
        trajectory_index=torch.as_tensor(index or [0] * size),
        **extra,
    )


def loss_of(inputs, num_trajectories=1, num_tokens=1, **changes):
    return exgrpo_loss(inputs, dataclasses.replace(SETTINGS, **changes), MiniBatchSizes(num_trajectories, num_tokens))


def test_ratio_is_the_quotient_of_probabilities():
    ratios = importance_ratios(torch.tensor([0.6, 0.1]).log(), torch.tensor([0.3, 0.4]).log())
    torch.testing.assert_close(ratios, torch.tensor([2.0, 0.25]))


def test_shaping_by_hand():
    # f(w) = w / (w + 0.1): 0 -> 0, 0.1 -> 1/2, 0.9 -> 0.9, large -> 1.
    shaped = shape_ratio(torch.tensor([0.0, 0.1, 0.9, 1e9]), 0.1)
    torch.testing.assert_close(shaped, torch.tensor([0.0, 0.5, 0.9, 1.0]))


def test_mixed_objective_by_hand():
    # Fresh token: w = 2, A = -1 -> -2. Replayed token: w = 0.4, f = 0.8, A = 3 -> 2.4. Sum 0.4, over 10 tokens of
    # length budget, mean of 2 trajectories, minus sign: -0.02.
    inputs = packed([math.log(0.6), math.log(0.2)], [math.log(0.3), math.log(0.5)], [-1.0, 3.0], [False, True], [0, 1])
    assert float(loss_of(inputs, num_trajectories=2).loss) == pytest.approx(-0.02)


def test_without_shaping_the_replayed_ratio_is_plain_and_unclipped():
    inputs = packed([math.log(0.9)], [math.log(0.3)], [1.0], [True])
    assert float(loss_of(inputs, correction=UNSHAPED, clips_fresh=True).loss) == pytest.approx(-0.3)
    huge = packed([0.0], [-1000.0], [1.0], [True])
    assert math.isfinite(float(loss_of(huge, correction=UNSHAPED).loss))


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.5, 1.0, 1.2), (0.5, 1.0, 0.5), (1.5, -1.0, -1.5), (0.5, -1.0, -0.8), (1.1, 2.0, 2.2)],
)
def test_clip_holds_fresh_tokens_only_while_it_is_on(ratio, advantage, clipped):
    inputs = packed([math.log(ratio)], [0.0], [advantage], [False])
    assert float(loss_of(inputs, clips_fresh=True).loss) == pytest.approx(-clipped / 10)
    assert float(loss_of(inputs, clips_fresh=False).loss) == pytest.approx(-ratio * advantage / 10)


def test_token_mean_averages_inside_a_trajectory_first():
    # Trajectory 0 has tokens 1 and 3 (mean 2), trajectory 1 one token of 5: mean 3.5.
    inputs = packed([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 3.0, 5.0], [False] * 3, [0, 0, 1])
    loss = loss_of(inputs, num_trajectories=2, aggregation=LossAggregation.TOKEN_MEAN).loss
    assert float(loss) == pytest.approx(-3.5)


def test_policy_loss_factor_multiplies_the_policy_term_only():
    inputs = packed([0.0], [0.0], [1.0], [False], entropies=torch.tensor([2.0], dtype=torch.float64))
    scaled = loss_of(inputs, policy_loss_factor=64.0, entropy_coefficient=0.5)
    assert float(scaled.loss) == pytest.approx(-64 / 10 - 0.5 * 2.0)
    assert float(scaled.sums["entropy_bonus"]) == pytest.approx(1.0)


def test_kl_penalty_is_the_k3_estimate():
    # log pi_ref - log pi = ln 2: 2 - ln 2 - 1.
    inputs = packed([0.0], [0.0], [0.0], [False], reference_log_probs=torch.tensor([math.log(2)], dtype=torch.float64))
    assert float(loss_of(inputs, kl_coefficient=0.1).loss) == pytest.approx(0.1 * (1 - math.log(2)))


@pytest.mark.parametrize("aggregation", list(LossAggregation))
@pytest.mark.parametrize("clips_fresh", [True, False])
def test_micro_batches_add_up_to_the_whole(aggregation, clips_fresh):
    generator = torch.Generator().manual_seed(1)
    lengths = [3, 1, 5, 2]
    index = [i for i, length in enumerate(lengths) for _ in range(length)]
    size = len(index)
    log_probs = torch.randn(size, generator=generator, dtype=torch.float64)
    behavior = log_probs + 0.3 * torch.randn(size, generator=generator, dtype=torch.float64)
    advantages = torch.randn(4, generator=generator, dtype=torch.float64)[index]
    replayed = torch.tensor([False, True, False, True])[index]
    entropies = torch.rand(size, generator=generator, dtype=torch.float64)
    changes = {"aggregation": aggregation, "clips_fresh": clips_fresh, "entropy_coefficient": 0.01}

    def loss(rows):
        keep = torch.tensor([i in rows for i in index])
        inputs = LossInputs(
            log_probs[keep], behavior[keep], advantages[keep], replayed[keep], torch.ones(int(keep.sum()), dtype=bool),
            torch.tensor(index)[keep] - min(rows), entropies[keep],
        )  # fmt: skip
        return loss_of(inputs, num_trajectories=4, num_tokens=size, **changes)

    whole, first, second = loss({0, 1, 2, 3}), loss({0, 1}), loss({2, 3})
    torch.testing.assert_close(first.loss + second.loss, whole.loss)
    merged, alone = summarize_sums([first.sums, second.sums], 1), summarize_sums([whole.sums], 1)
    assert merged == pytest.approx(alone)


def test_padding_never_reaches_loss_gradient_or_statistics():
    log_probs = torch.tensor([[-1.0, -2.0, float("nan")], [-0.5, float("inf"), -1e9]], dtype=torch.float64)
    log_probs.requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    index = torch.tensor([[0, 0, 0], [1, 1, 1]])
    inputs = LossInputs(
        log_probs, torch.full_like(log_probs, -1.0).detach(), torch.ones_like(log_probs).detach(),
        torch.tensor([[True] * 3, [False] * 3]), mask, index, torch.where(mask, 1.0, float("nan")),
    )  # fmt: skip
    padded = loss_of(inputs, num_trajectories=2, num_tokens=3, entropy_coefficient=0.1)
    padded.loss.backward()
    flat = packed(
        [-1.0, -2.0, -0.5], [-1.0] * 3, [1.0] * 3, [True, True, False], [0, 0, 1],
        entropies=torch.ones(3, dtype=torch.float64),
    )  # fmt: skip
    dense = loss_of(flat, num_trajectories=2, num_tokens=3, entropy_coefficient=0.1)
    torch.testing.assert_close(padded.loss.detach(), dense.loss)
    assert torch.equal(log_probs.grad[~mask], torch.zeros(3, dtype=torch.float64))
    assert torch.isfinite(log_probs.grad).all()
    assert summarize_sums([padded.sums], 1) == pytest.approx(summarize_sums([dense.sums], 1))


@pytest.mark.parametrize("clips_fresh", [True, False])
@pytest.mark.parametrize("correction", [SETTINGS.correction, UNSHAPED])
def test_gradient_agrees_with_finite_differences(clips_fresh, correction):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 3, 1, 4, 2, 2])
    behavior = torch.log_softmax(torch.randn(6, 5, generator=generator, dtype=torch.float64), -1)
    behavior = behavior.gather(1, tokens[:, None])[:, 0]
    reference = behavior - 0.2

    def loss(values):
        distribution = torch.log_softmax(values, -1)
        inputs = LossInputs(
            distribution.gather(1, tokens[:, None])[:, 0], behavior,
            torch.tensor([0.7, 0.7, -0.3, -0.3, 0.5, 0.5], dtype=torch.float64),
            torch.tensor([False, False, False, False, True, True]), torch.ones(6, dtype=torch.bool),
            torch.tensor([0, 0, 1, 1, 2, 2]), -(distribution.exp() * distribution).sum(-1), reference,
        )  # fmt: skip
        return loss_of(
            inputs, 3, 6, clips_fresh=clips_fresh, correction=correction, entropy_coefficient=0.02,
            kl_coefficient=0.03,
        ).loss  # fmt: skip

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-7)


def test_statistics_by_hand():
    # Replayed ratios 1 and 3: mean 2, effective size 16 / (2 * 10); fresh ratios 2 (A > 0: clipped) and 0.5 (not).
    inputs = packed(
        [0.0, math.log(3), math.log(2), math.log(0.5)], [0.0] * 4, [1.0] * 4, [True, True, False, False], [0, 0, 1, 1]
    )
    metrics = summarize_sums([loss_of(inputs, 2, 4, clips_fresh=True).sums], 1)
    assert metrics["ratio/replayed_mean"] == pytest.approx(2.0)
    assert metrics["ratio/replayed_max"] == pytest.approx(3.0)
    assert metrics["ratio/replayed_ess"] == pytest.approx(0.8)
    assert metrics["ratio/shaped_mean"] == pytest.approx((1 / 1.1 + 3 / 3.1) / 2)
    assert metrics["ratio/fresh_mean"] == pytest.approx(1.25)
    assert metrics["ratio/clip_share"] == pytest.approx(0.5)


def test_missing_tensors_and_wrong_shapes_are_named():
    inputs = packed([0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [False, False])
    with pytest.raises(ValueError, match="entropies"):
        loss_of(inputs, entropy_coefficient=0.1)
    with pytest.raises(ValueError, match="reference_log_probs"):
        loss_of(inputs, kl_coefficient=0.1)
    with pytest.raises(ValueError, match="advantages: expected shape"):
        loss_of(dataclasses.replace(inputs, advantages=torch.zeros(1)))
