import pytest
import torch

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.methods.run_strategies import build_objective

pytestmark = [pytest.mark.verl]

OBJECTIVE = build_objective(ExGRPOConfig(entropy_coefficient=0.0, policy_loss_factor=1.0), is_replay_open=True)


def nested(*rows):
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def sums(**changes):
    """Return the loss of a fresh and a replayed row, of prompts of 2 and 1 tokens and responses of 1 and 2."""
    from tensordict import TensorDict

    from exgrpo_core.verl_plugin.loss import experience_loss

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
    }
    data = TensorDict(columns | changes, batch_size=[2])
    for name, value in {"num_trajectories": 2, "num_tokens": 3, "dp_size": 1}.items():
        data.set_non_tensor(name, value)
    loss, metrics = experience_loss(OBJECTIVE, {"log_probs": columns["log_probs"]}, data)
    return float(loss), {name: metric.aggregate() for name, metric in metrics.items()}


def test_behavior_log_probs_are_those_before_the_update_or_the_stored_ones_as_each_row_says():
    _, metrics = sums()
    assert (metrics["num_fresh"], metrics["num_replayed"]) == (1.0, 2.0)
    assert metrics["behavior_log_prob_sum"] == pytest.approx(0.0 - 1.5 - 1.0)
    _, metrics = sums(is_behavior_stored=nested([1.0], [0.0]))
    assert metrics["behavior_log_prob_sum"] == pytest.approx(-5.0 - 1.0 - 2.0)


def test_an_advantage_of_a_row_is_that_of_each_of_its_tokens():
    assert sums(advantages=nested([2.0], [-1.0, -1.0])) == sums()
    assert sums(advantages=nested([2.0], [-1.0, -3.0])) != sums()
