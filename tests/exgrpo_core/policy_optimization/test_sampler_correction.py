import dataclasses
import math

import numpy as np
import pytest
import torch

from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import SamplerCorrection
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.importance import sampler_metrics, sampler_weights, stored_log_probs
from exgrpo_core.policy_optimization.mixed_batch import group_rows
from exgrpo_core.policy_optimization.objective import LossInputs, MiniBatchSizes, exgrpo_loss
from exgrpo_core.types import RolloutGroup
from tests.exgrpo_core.builders import question, small_config, trajectory
from tests.exgrpo_core.toy_engine import ToyEngine

TRAINER = np.log([0.5, 0.5, 0.1, 0.6], dtype=np.float32)
SAMPLER = np.log([0.8, 0.2, 0.2, 0.5], dtype=np.float32)
"""pi_old / mu is .625, 2.5, .5 and 1.2."""


def config_with(correction, **changes):
    return small_config(sampler_correction=SamplerCorrection(correction), **changes)


def sampled(tokens=(3, 4, 5, 6), log_probs=TRAINER, sampler=SAMPLER, reward=1.0):
    return dataclasses.replace(trajectory(0, tokens, reward, log_probs), sampler_log_probs=sampler)


@pytest.mark.parametrize(
    ("correction", "weights", "behavior"),
    [
        ("truncate", [0.625, 2.0, 0.5, 1.2], [0.8, 0.25, 0.2, 0.5]),
        # .5 lies on the edge of the range from 1/2 to 2 and is kept; 2.5 is rejected and stored at the edge.
        ("reject", [0.625, 0.0, 0.5, 1.2], [0.8, 0.25, 0.2, 0.5]),
    ],
)
def test_weights_and_stored_probabilities_by_hand(correction, weights, behavior):
    config = config_with(correction, sampler_ratio_limit=2.0 + 1e-6)
    np.testing.assert_allclose(sampler_weights(sampled(), config), weights, rtol=1e-5)
    np.testing.assert_allclose(np.exp(stored_log_probs(sampled(), config)), behavior, rtol=1e-5)


def test_rejected_token_that_the_sampler_liked_too_much_is_stored_at_the_lower_end():
    config = config_with("reject")
    item = sampled([3], np.log(np.float32([0.1])), np.log(np.float32([0.9])))
    assert sampler_weights(item, config).tolist() == [0.0]
    np.testing.assert_allclose(np.exp(stored_log_probs(item, config)), [0.2], rtol=1e-5)


@pytest.mark.parametrize(("item", "correction"), [(sampled(), "none"), (trajectory(0, [3, 4], 1.0), "truncate")])
def test_nothing_is_corrected_unless_asked_for_and_where_the_sampler_is_the_trainer(item, correction):
    config = config_with(correction)
    assert sampler_weights(item, config) is None
    assert stored_log_probs(item, config) is item.log_probs
    assert sampler_metrics([RolloutGroup(question(0), [item])], config) == {}


def test_metrics_by_hand():
    group = RolloutGroup(question(0), [sampled(), sampled()])
    found = sampler_metrics([group], config_with("truncate"))
    assert found["generator/weight_mean"] == pytest.approx((0.625 + 2.0 + 0.5 + 1.2) / 4)
    assert found["generator/limited_share"] == 0.25


@pytest.mark.parametrize(
    ("correction", "limit", "expected"), [("none", 2.0, 0.6), ("truncate", 3.0, 0.0), ("truncate", 2.0, 0.1)]
)
def test_planted_mismatch_is_corrected_in_the_gradient(correction, limit, expected):
    """A policy that takes either token with .5, sampled with .8 and .2: rewards of 1 and -1 have a mean of 0 under it.

    By hand, over the sampler's draws: .8 x 1 - .2 x 1 = .6 uncorrected, .8 x .625 - .2 x 2.5 = 0 corrected, and
    .8 x .625 - .2 x 2 = .1 with the limit of 2.
    """
    config = config_with(correction, sampler_ratio_limit=limit, rollouts_per_question=2, clipping="never")
    old, sampler = np.log(np.float32([0.5])), (np.log(np.float32([0.8])), np.log(np.float32([0.2])))
    group = RolloutGroup(
        question(0), [sampled([token], old, log_prob) for token, log_prob in zip((3, 4), sampler, strict=True)]
    )
    group.advantages = np.float32([1.0, -1.0])
    rows = group_rows(group, config)
    log_probs = torch.full((2,), math.log(0.5), requires_grad=True)
    inputs = LossInputs(
        log_probs=log_probs,
        behavior_log_probs=torch.from_numpy(np.concatenate([row.behavior_log_probs for row in rows])),
        advantages=torch.from_numpy(np.concatenate([row.token_advantages for row in rows])),
        is_replayed=torch.zeros(2, dtype=torch.bool),
        response_mask=torch.ones(2, dtype=torch.bool),
        trajectory_index=torch.arange(2),
    )
    objective = build_objective(
        dataclasses.replace(config, max_response_tokens=1, policy_loss_factor=2.0), is_replay_open=True
    )
    exgrpo_loss(inputs, objective, MiniBatchSizes(2, 2)).loss.backward()
    draws = torch.tensor([0.8, 0.2])
    assert float((-log_probs.grad * draws).sum()) == pytest.approx(expected, abs=1e-6)


def test_a_step_weighs_fresh_rows_and_replays_against_the_sampler(tmp_path):
    class Drifting(ToyEngine):
        """Samples each token as if it were e^.2 times likelier than the trainer thinks."""

        def _trajectory(self, question):
            item = super()._trajectory(question)
            item.log_probs -= np.float32(0.3)
            return dataclasses.replace(item, sampler_log_probs=item.log_probs + np.float32(0.2))

    config = config_with("truncate")
    engine = Drifting([0.5] * 20)
    state = ExGRPOState.create(tmp_path, [question(i) for i in range(20)], config)
    reports = [exgrpo_step(state, engine, config) for _ in range(3)]
    rows = [row for mini_batch in engine.mini_batches for row in mini_batch.rows]
    fresh = [row for row in rows if not row.is_replayed]
    replayed = [row for row in rows if row.is_replayed]
    assert replayed
    np.testing.assert_allclose(np.concatenate([row.weights for row in fresh]), math.exp(-0.2), rtol=1e-5)
    born = {item.token_ids.tobytes(): item for report in reports for g in report.groups for item in g.trajectories}
    for row in replayed:
        assert row.weights is None
        np.testing.assert_allclose(row.behavior_log_probs, born[row.token_ids.tobytes()].sampler_log_probs, rtol=1e-5)
    assert reports[-1].metrics["generator/weight_mean"] == pytest.approx(math.exp(-0.2), rel=1e-5)
    assert reports[-1].metrics["generator/limited_share"] == 0.0
