"""Off-policy corrections and objectives with numbers computed by hand: values, and derivatives by log pi."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from exgrpo_core.config import Clipping, ExGRPOConfig, LossAggregation
from exgrpo_core.methods.loading import CORRECTION, build_objective, build_part
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages, group_rows, weigh_tokens
from exgrpo_core.policy_optimization.objective import LossInputs, MiniBatchSizes, exgrpo_loss
from exgrpo_core.policy_optimization.replay_effects import differentiated_weights, gradient_weights
from exgrpo_core.types import TokenRatios
from tests.exgrpo_core.builders import group, replay, small_config

LIMITS = {"clip_epsilon": 0.2, "clip_epsilon_high": 0.28, "shaping_beta": 0.1}


def correction_of(name, **settings):
    return build_part(
        CORRECTION, SimpleNamespace(off_policy_correction=name, **{"strategy_settings": {}} | LIMITS | settings)
    )


def weigh(name, ratios, advantages=None, index=None, mask=None, **settings):
    logs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    count = len(ratios)
    tokens = TokenRatios(
        logs.exp(),
        torch.tensor(advantages or [1.0] * count, dtype=torch.float64),
        torch.tensor(mask or [True] * count),
        torch.tensor(index or [0] * count),
    )
    weights = correction_of(name, **settings).weights(tokens)
    weights.sum().backward()
    return weights.detach().tolist(), logs.grad.tolist()


@pytest.mark.parametrize(
    ("name", "expected", "derivatives"),
    [
        ("token", [3.0, 0.4, 1.0], [3.0, 0.4, 1.0]),
        ("truncated", [2.0, 0.4, 1.0], [2.0, 0.4, 1.0]),
        ("masked", [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
        ("cispo", [1.28, 0.8, 1.0], [1.28, 0.8, 1.0]),
        ("m2po", [3.0, 0.4, 1.0], [3.0, 0.4, 1.0]),
        ("p3o", [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
        ("policy_divergence", [3.0, 0.4, 1.0], [3.0, 0.4, 1.0]),
        # -f(w) and -f'(w) w, with f' = log(2 w / (1 + w)) / 2.
        (
            "jensen_shannon",
            [(4 * math.log(2) - 3 * math.log(3)) / 2, (1.4 * math.log(0.7) - 0.4 * math.log(0.4)) / 2, 0.0],
            [-1.5 * math.log(1.5), -0.2 * math.log(0.8 / 1.4), 0.0],
        ),
        ("policy_shaping", [3 / 3.1, 0.8, 1 / 1.1], [0.3 / 9.61, 0.04 / 0.25, 0.1 / 1.21]),
    ],
)
def test_weights_of_single_tokens(name, expected, derivatives):
    values, found = weigh(name, [3.0, 0.4, 1.0])
    assert values == pytest.approx(expected)
    assert found == pytest.approx(derivatives)


def factors_of(name, log_ratios, **settings):
    correction = correction_of(name, strategy_settings=settings)
    return [part.tolist() for part in correction.step_factors([np.array(part) for part in log_ratios])]


def test_m2po_leaves_out_the_largest_log_ratios_until_the_mean_square_of_a_step_is_small():
    # Squares .04, .16 and .01, .09: the means of the smallest 1, 2, 3, 4 are .01, .025, .0467, .075.
    gaps = [[0.2, -0.4], [0.1, 0.3]]
    assert factors_of("m2po", gaps) == [[1.0, 0.0], [1.0, 0.0]]
    assert factors_of("m2po", gaps, moment_limit=0.05) == [[1.0, 0.0], [1.0, 1.0]]
    assert factors_of("m2po", gaps, moment_limit=0.08) == [[1.0, 1.0], [1.0, 1.0]]
    assert factors_of("m2po", gaps, moment_limit=0.001) == [[0.0, 0.0], [1.0, 0.0]]


def test_p3o_limits_ratios_by_the_effective_sample_size_of_a_step():
    # w = 2, 1 and 1: (2 + 1 + 1)^2 / (3 * (4 + 1 + 1)) = 8/9. With .5 in the place of the last 1: 3.5^2 / (3 * 5.25).
    limit = pytest.approx(8 / 9)
    assert factors_of("p3o", [[math.log(2.0), 0.0], [0.0]]) == [[limit, limit], [limit]]
    limit = pytest.approx(7 / 9)
    assert factors_of("p3o", [[math.log(2.0), 0.0], [math.log(0.5)]]) == [[limit, limit], [0.5]]
    assert factors_of("p3o", [[0.0]]) == [[1.0]]
    assert factors_of("p3o", [[1000.0], [0.0]]) == [[pytest.approx(0.5)], [pytest.approx(0.5)]]


def test_replay_counts_less_as_policies_differ():
    assert factors_of("policy_divergence", [[0.5, -1.5], [0.0]]) == [[pytest.approx(math.exp(-1.0))] * 2, [1.0]]


def test_factors_of_a_step_reach_the_advantages_of_replayed_tokens_only():
    config = small_config(rollouts_per_question=3)
    mixed = [group(0, [0.0, 0.0], replay(0, [5, 6], [-1.0, -1.0], [-1.1, -1.5])), group(1, [0.0, 1.0, 1.0])]
    assign_advantages(mixed, config)
    weigh_tokens(mixed, config, correction_of("m2po"))
    rows = group_rows(mixed[0], config)
    assert [row.token_advantages.tolist() for row in rows[:2]] == [[pytest.approx(-1 / 3)] * 2] * 2
    assert rows[2].token_advantages.tolist() == pytest.approx([2 / 3, 0.0])
    mixed[0].replays = (dataclasses.replace(mixed[0].replays[0], weight=0.5),)
    assert group_rows(mixed[0], config)[2].token_advantages.tolist() == pytest.approx([1 / 3, 0.0])
    weigh_tokens(mixed[1:], config, correction_of("m2po"))
    assert mixed[1].replays == ()


def test_supervised_learning_raises_each_success_alike_and_ignores_failures():
    values, derivatives = weigh("supervised", [3.0, 0.4, 1.0], [0.25, 0.5, -0.75])
    assert values == pytest.approx([4.0, 2.0, 0.0])
    assert derivatives == pytest.approx([4.0, 2.0, 0.0])
    assert [d * a for d, a in zip(derivatives, [0.25, 0.5, -0.75], strict=True)] == pytest.approx([1.0, 1.0, 0.0])


def test_clip_stops_where_going_further_would_pay():
    values, derivatives = weigh("clip", [1.5, 1.5, 0.5, 0.5, 1.1], [1.0, -1.0, 1.0, -1.0, 1.0])
    assert values == pytest.approx([1.28, 1.5, 0.5, 0.8, 1.1])
    assert derivatives == pytest.approx([0.0, 1.5, 0.5, 0.0, 1.1])
    assert weigh("clip", [1.5], clip_epsilon_high=None)[0] == pytest.approx([1.2])


def test_cispo_has_no_lower_limit_in_effect_at_an_epsilon_near_one():
    values, derivatives = weigh("cispo", [3.0, 0.4], clip_epsilon=0.999)
    assert values == derivatives == pytest.approx([1.28, 0.4])


@pytest.mark.parametrize("aggregation", LossAggregation)
def test_gspo_has_the_gradient_of_a_fixed_sequence_ratio_times_the_log_probs(aggregation):
    log_probs = torch.log(torch.tensor([1.5, 0.9, 1.1])).requires_grad_()
    base = ExGRPOConfig(max_response_tokens=4, entropy_coefficient=0.0, clipping=Clipping.ALWAYS)
    objective = build_objective(
        dataclasses.replace(base, fresh_objective="gspo", clip_epsilon_high=0.4, loss_aggregation=aggregation),
        is_replay_open=True,
    )
    inputs = LossInputs(
        log_probs, torch.zeros(3), torch.tensor([1.0, 1.0, -0.5]), torch.tensor([False] * 3), torch.tensor([True] * 3),
        torch.tensor([0, 0, 1]),
    )  # fmt: skip
    exgrpo_loss(inputs, objective, MiniBatchSizes(2, 3)).loss.backward()
    # s = sqrt(1.5 * .9) and 1.1; each token's gradient is -s A over its sequence's length or the longest, over 2.
    lengths = [2, 2, 1] if aggregation is LossAggregation.TOKEN_MEAN else [4, 4, 4]
    ratios = [math.sqrt(1.35), math.sqrt(1.35), -0.5 * 1.1]
    expected = [-ratio / length / 2 for ratio, length in zip(ratios, lengths, strict=True)]
    assert log_probs.grad.tolist() == pytest.approx(expected, rel=1e-5)


def test_gspo_weighs_a_sequence_by_the_geometric_mean_of_its_tokens_that_count():
    ratios = [math.exp(0.1), math.exp(0.3), math.exp(-0.2), math.exp(5.0)]
    arguments = {"index": [0, 0, 1, 1], "mask": [True, True, True, False]}
    values, derivatives = weigh("gspo", ratios, **arguments)
    assert values == pytest.approx([math.exp(0.2)] * 2 + [math.exp(-0.2)] * 2)
    # Each token moves its sequence's ratio by half of it, at both of its tokens; the masked one moves nothing.
    assert derivatives == pytest.approx([math.exp(0.2)] * 2 + [2 * math.exp(-0.2), 0.0])
    values, derivatives = weigh(
        "gspo", ratios, [1.0, 1.0, -1.0, -1.0], clip_epsilon=0.1, clip_epsilon_high=0.15, **arguments
    )
    assert values == pytest.approx([1.15, 1.15, 0.9, 0.9])
    assert derivatives == pytest.approx([0.0] * 4)


@pytest.mark.parametrize("advantage", [0.75, -0.25])
def test_gradient_weights_of_any_correction_are_its_derivative(advantage):
    logs = np.log([0.5, 1.0, 3.0])
    shaped = differentiated_weights(correction_of("policy_shaping"), logs, advantage)
    np.testing.assert_allclose(shaped, gradient_weights(logs, 0.1))
    np.testing.assert_allclose(differentiated_weights(correction_of("masked"), logs, advantage), [0.5, 1.0, 0.0])


def test_objectives_of_fresh_tokens_apply_where_clipping_does():
    base = ExGRPOConfig(max_response_tokens=2, entropy_coefficient=0.0, clipping=Clipping.ALWAYS)
    log_probs = torch.log(torch.tensor([1.5, 1.5]))
    inputs = LossInputs(
        log_probs, torch.zeros(2), torch.tensor([1.0, -1.0]), torch.tensor([False] * 2), torch.tensor([True] * 2),
        torch.tensor([0, 1]),
    )  # fmt: skip

    def loss(**changes):
        objective = build_objective(dataclasses.replace(base, **changes), is_replay_open=True)
        return float(exgrpo_loss(inputs, objective, MiniBatchSizes(1, 2)).loss)

    # Sums of w A over 2: A = 1 is held to the upper limit, A = -1 at w = 1.5 is not.
    assert loss() == pytest.approx(-(1.2 - 1.5) / 2)
    assert loss(clip_epsilon_high=0.28) == pytest.approx(-(1.28 - 1.5) / 2)
    assert loss(fresh_objective="cispo", clip_epsilon_high=0.28) == pytest.approx(0.0)
    assert loss(fresh_objective="gspo", clip_epsilon_high=0.4) == pytest.approx(-(1.4 - 1.5) / 2)
    assert loss(fresh_objective="cispo", clipping=Clipping.NEVER) == pytest.approx(0.0)
