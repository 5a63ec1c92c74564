from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.config import HARD
from exgrpo_core.policy_optimization.mixed_batch import (
    assign_advantages,
    build_mini_batches,
    group_rows,
    trained_groups,
)
from tests.exgrpo_core.builders import group, replay, small_config

pytestmark = pytest.mark.slow


def batch_of(num_experiential, config):
    groups = [group(i, [1, 0, 0, 0]) for i in range(config.batch_size - num_experiential)]
    groups += [
        group(i, [0, 0, 0], replay(i, [5, 6], [-1.0, -2.0], [-0.1, -0.2]))
        for i in range(len(groups), config.batch_size)
    ]
    assign_advantages(groups, config)
    return groups


@given(
    num_experiential=st.integers(0, 16),
    num_left_out=st.integers(0, 12),
    num_batches=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 99),
)
def test_every_mini_batch_holds_its_share_of_whole_experiential_groups(
    num_experiential, num_left_out, num_batches, seed
):
    config, rng = small_config(batch_size=16, mini_batch_size=16 // num_batches), np.random.default_rng(seed)
    groups = [batch_of(num_experiential, config)[i] for i in rng.permutation(16)[num_left_out:]]
    batches = build_mini_batches(groups, config, rng)
    counts = [sum(row.is_replayed for row in batch.rows) for batch in batches]
    assert sum(counts) == sum(item.has_replay for item in groups)
    assert max(counts) - min(counts) <= 1
    sizes = [batch.num_trajectories for batch in batches]
    assert max(sizes) - min(sizes) <= 4
    homes = [[int(row.prompt_ids[2]) for row in batch.rows] for batch in batches]
    assert sorted(chain.from_iterable(homes)) == sorted([item.question.index for item in groups] * 4)
    assert all(not set(a) & set(b) for i, a in enumerate(homes) for b in homes[:i]), "groups are never split"


def test_of_too_many_groups_those_whose_rewards_vary_least_are_left_out_and_of_equal_ones_the_last():
    fresh = [group(i, rewards) for i, rewards in enumerate([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])]
    groups = [*fresh, group(4, [0, 0, 0], replay(4, [5, 6], [-1.0, -2.0], [-0.1, -0.2]))]
    trained = [[item.question.index for item in trained_groups(groups, size)] for size in (6, 4, 3, 2)]
    assert trained == [[0, 1, 2, 3, 4], [0, 1, 2, 4], [0, 1, 4], [0, 4]]


@pytest.mark.parametrize(("corrects_importance", "expected"), [(True, [-1.0, -2.0]), (False, [-0.1, -0.2])])
def test_replayed_row_carries_the_past_policys_log_probs_or_without_correction_the_old_ones(
    corrects_importance, expected
):
    config = small_config(batch_size=1, mini_batch_size=1, corrects_importance=corrects_importance)
    (mixed,) = batch_of(1, config)
    np.testing.assert_allclose(group_rows(mixed, config)[-1].behavior_log_probs, expected)
    (batch,) = build_mini_batches([mixed], config, np.random.default_rng(0))
    assert batch.num_tokens == 3 * 2 + 2


def test_malformed_groups_and_batches_are_refused():
    config = small_config(batch_size=1, mini_batch_size=1)
    (cut,), (short,) = batch_of(1, config), batch_of(1, config)
    cut.trajectories[0].log_probs = np.zeros(1, dtype=np.float32)
    short.trajectories.pop()
    for groups in ([cut], [short], [group(0, [1, 0, 0, 0])], []):
        with pytest.raises(ValueError, match=r"question 0|expected 1 to 1 groups"):
            build_mini_batches(groups, config, np.random.default_rng(0))


def test_questions_left_are_those_that_are_neither_masked_nor_rewarded_alike():
    config = small_config(batch_size=4, mini_batch_size=4, experience_ratio=0.0, mask_range=HARD)
    groups = [group(0, [1, 0, 0, 0]), group(1, [1, 1, 0, 0]), group(2, [0, 0, 0, 0]), group(3, [0, 1, 0, 0])]
    assign_advantages(groups, config)
    (batch,) = build_mini_batches(groups, config, np.random.default_rng(0))
    assert batch.num_questions_left == 2
