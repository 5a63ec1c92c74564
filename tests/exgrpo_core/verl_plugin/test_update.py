import math

import numpy as np
import pytest
import torch

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow

pytestmark = [pytest.mark.verl]

OBJECTIVE = build_objective(ExGRPOConfig(entropy_coefficient=0.0, policy_loss_factor=1.0), is_replay_open=True)
TOKENS = np.array([3, 4], dtype=np.int32)
LOG_PROBS = np.array([-1.0, -2.0], dtype=np.float32)


def rows():
    return [TrainingRow(TOKENS, TOKENS, LOG_PROBS, 0.5, False)]


def returned(**changes):
    from exgrpo_core.verl_plugin.update import SUM_NAMES

    sums = dict.fromkeys(SUM_NAMES, 0.5) | {"num_fresh": 2.0, "num_replayed": 0.0, "behavior_log_prob_sum": -3.0}
    return sums | {"grad_norm": 0.25} | changes


def test_mini_batches_that_verl_leaves_out_are_counted_where_the_settings_say_so():
    from exgrpo_core.verl_plugin.update import UpdateTally

    tally = UpdateTally(skips_non_finite=True)
    for changes in ({"grad_norm": math.nan}, {}, {"total": math.inf}):
        tally.add("a mini-batch", rows(), returned(**changes))
    metrics = tally.metrics()
    assert metrics["optim/num_skipped"] == 2.0
    assert (metrics["optim/gradient_norm"], metrics["loss/total"], metrics["optim/num_updated_tokens"]) == (
        0.25, 0.5, 2,
    )  # fmt: skip
    tally = UpdateTally(skips_non_finite=True)
    tally.add("a mini-batch", rows(), returned(grad_norm=math.nan))
    assert tally.metrics() == {"optim/num_skipped": 1.0}


def test_a_mini_batch_that_is_not_finite_ends_the_run_otherwise():
    from exgrpo_core.verl_plugin.update import UpdateTally

    with pytest.raises(EngineError, match=r"grad_norm is nan.*optim.non_finite: skip"):
        UpdateTally().add("a mini-batch", rows(), returned(grad_norm=math.nan))
    tally = UpdateTally()
    tally.add("a mini-batch", rows(), returned())
    assert "optim/num_skipped" not in tally.metrics()


def test_of_a_row_in_transfer_queue_only_what_the_driver_decides_is_sent():
    from exgrpo_core.verl_plugin.rows import KeptRows, QueuedRow, TokenRow
    from exgrpo_core.verl_plugin.update import update_rows

    kept = KeptRows()
    kept.add([QueuedRow("a", 4)], [TOKENS], [LOG_PROBS])
    fresh, replayed, changed = update_rows(
        [
            TrainingRow(TOKENS, TOKENS, LOG_PROBS, 0.5, False),
            TrainingRow(TOKENS, TOKENS.copy(), LOG_PROBS - 1, -0.5, True),
            TrainingRow(TOKENS, TOKENS, LOG_PROBS.copy(), 0.5, False),
        ],
        kept,
    )
    assert isinstance(fresh, QueuedRow)
    assert (fresh.key, fresh.num_tokens) == ("a", 4)
    assert isinstance(replayed, TokenRow)
    assert replayed.stored_log_probs.tolist() == [-2.0, -3.0]
    assert isinstance(changed, TokenRow)
    assert changed.stored_log_probs.tolist() == [-1.0, -2.0]
    values = [{name: column.tolist() for name, column in row.columns.items()} for row in (fresh, replayed, changed)]
    assert values == [
        {"advantages": [0.5], "is_replayed": [0.0], "is_behavior_stored": [0.0]},
        {"advantages": [-0.5], "is_replayed": [1.0], "is_behavior_stored": [1.0]},
        {"advantages": [0.5], "is_replayed": [0.0], "is_behavior_stored": [1.0]},
    ]


def nested(*rows):
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def sums(keeps_seen=False, **changes):
    """Return the loss of a fresh and a replayed row, of prompts of 2 and 1 tokens and responses of 1 and 2.

    Then its sums, and what it saw of the rows, which are those of the places 1 and 0 of their block.
    """
    from tensordict import TensorDict

    from exgrpo_core.verl_plugin.update import ExperienceLoss

    columns = {
        "prompts": nested([1, 2], [3]),
        "responses": nested([4], [5, 6]),
        "response_mask": nested([1], [1, 1]),
        # A value is of the token after it: the response's are 0.001 (cut to 0), and -1 and -2.
        "log_probs": nested([-9.0, 0.001, -9.0], [-1.0, -2.0, -9.0]),
        "rollout_log_probs": nested([-5.0], [-1.5, -1.0]),
        "advantages": nested([2.0], [-1.0]),
        "is_replayed": nested([0.0], [1.0]),
        "is_behavior_stored": nested([0.0], [1.0]),
        "row": nested([1], [0]),
    }
    data = TensorDict(columns | changes, batch_size=[2])
    for name, value in {"num_trajectories": 2, "num_tokens": 3, "dp_size": 1}.items():
        data.set_non_tensor(name, value)
    compute = ExperienceLoss(OBJECTIVE, keeps_seen)
    loss, metrics = compute({"log_probs": columns["log_probs"]}, data)
    return float(loss), {name: metric.aggregate() for name, metric in metrics.items()}, compute.seen


def test_behavior_log_probs_are_those_before_the_update_or_the_stored_ones_as_each_row_says():
    _, metrics, seen = sums()
    assert seen == {}
    assert (metrics["num_fresh"], metrics["num_replayed"]) == (1.0, 2.0)
    assert metrics["behavior_log_prob_sum"] == pytest.approx(0.0 - 1.5 - 1.0)
    _, metrics, _ = sums(is_behavior_stored=nested([1.0], [0.0]))
    assert metrics["behavior_log_prob_sum"] == pytest.approx(-5.0 - 1.0 - 2.0)


def test_an_advantage_of_a_row_is_that_of_each_of_its_tokens():
    assert sums(advantages=nested([2.0], [-1.0, -1.0])) == sums()
    assert sums(advantages=nested([2.0], [-1.0, -3.0])) != sums()


def test_what_the_loss_saw_of_each_row_is_kept_by_its_place_and_without_padding():
    _, _, seen = sums(keeps_seen=True, response_mask=nested([1], [1, 0]))
    values = {place: {name: array.tolist() for name, array in of_row.items()} for place, of_row in seen.items()}
    assert values == {1: {"update_log_probs": [np.float32(0.001)]}, 0: {"update_log_probs": [-1.0, -2.0]}}
