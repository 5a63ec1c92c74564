import math

import numpy as np
import pytest
import torch

from exgrpo_core.errors import EngineError

pytestmark = [pytest.mark.verl]

TOKENS = np.array([3, 4], dtype=np.int32)
COLUMNS = {"behavior_log_probs": torch.tensor([-1.0, -2.0]), "is_replayed": torch.tensor([0, 0])}


def rows():
    from exgrpo_core.verl_plugin.rows import TokenRow

    return [TokenRow(TOKENS, TOKENS, COLUMNS)]


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
        0.25,
        0.5,
        2,
    )
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
