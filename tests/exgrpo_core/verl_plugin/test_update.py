import math

import numpy as np
import pytest

from exgrpo_core.errors import EngineError
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow

pytestmark = [pytest.mark.verl]

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


def test_of_a_row_in_transfer_queue_only_what_the_driver_decides_is_sent():
    from exgrpo_core.verl_plugin.kept_rows import KeptRow, KeptRows
    from exgrpo_core.verl_plugin.rows import QueuedRow, TokenRow
    from exgrpo_core.verl_plugin.update import update_rows

    kept = KeptRows()
    kept.add([KeptRow(QueuedRow("a", 4), TOKENS, LOG_PROBS)])
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
