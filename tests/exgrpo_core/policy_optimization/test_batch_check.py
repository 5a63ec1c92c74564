import dataclasses

import numpy as np
import pytest

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow, check_mini_batches

CONFIG = ExGRPOConfig(batch_size=4, mini_batch_size=2, rollouts_per_question=2)


def group(advantages=(0.5, -0.5), replayed=(False, False)):
    prompt = np.array([1, 2], np.int32)
    tokens, log_probs = np.array([3], np.int32), np.array([-1.0], np.float32)
    return [TrainingRow(prompt, tokens, log_probs, *item) for item in zip(advantages, replayed, strict=True)]


EXPERIENTIAL = {"replayed": (False, True)}


def test_whole_groups_with_their_share_of_replays_pass():
    mini_batch = MiniBatch([*group(), *group((0.0, 0.0), (False, True))], 1)
    check_mini_batches([mini_batch, mini_batch], CONFIG)


@pytest.mark.parametrize(
    ("rows", "num_experiential", "message"),
    [
        (group()[:1], 0, "expected up to 2 groups of 2 rows, got 1 rows"),
        (group() * 3, 0, "expected up to 2 groups of 2 rows, got 6 rows"),
        ([*group(**EXPERIENTIAL), *group()], 0, r"in each of 0 groups and none in the others, got \[1, 0\]"),
        ([*group(replayed=(True, True)), *group()], 2, r"got \[2, 0\] a group"),
        ([*group((0.5, -0.4)), *group()], 0, r"group 1: expected advantages that sum to 0, got 0\.09"),
        ([group()[0], group()[1], *group()], 0, "group 1: expected 2 rows of one question"),
    ],
)
def test_what_does_not_hold_is_named_with_its_numbers(rows, num_experiential, message):
    with pytest.raises(ValueError, match=message):
        check_mini_batches([MiniBatch(rows, num_experiential)], CONFIG)


def test_sizes_of_mini_batches_differ_by_one_group_at_most():
    one, two = MiniBatch(group(), 0), MiniBatch([*group(), *group()], 0)
    check_mini_batches([one, two], CONFIG)
    with pytest.raises(ValueError, match=r"differ by one group at most, got \[2, 6\] rows"):
        check_mini_batches([one, MiniBatch(group() * 3, 0)], CONFIG)


def test_unequal_shares_of_experience_are_refused():
    fresh = MiniBatch([*group(), *group()], 0)
    with pytest.raises(ValueError, match=r"expected equal shares of experiential groups, got \[0, 2\]"):
        check_mini_batches([fresh, dataclasses.replace(fresh, num_experiential_groups=2)], CONFIG)
