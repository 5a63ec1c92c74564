import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.config import HARD
from exgrpo_core.policy_optimization.advantages import assign_advantages
from exgrpo_core.policy_optimization.mixed_batch import build_mini_batches, check_mini_batches, group_rows
from tests.exgrpo_core.builders import group, replay, small_config


def batch_of(num_experiential: int, config):
    groups = [group(i, [1, 0, 0, 0]) for i in range(config.batch_size - num_experiential)]
    groups += [
        group(i, [0, 0, 0], replay(i, [5, 6], [-1.0, -2.0], [-0.1, -0.2]))
        for i in range(len(groups), config.batch_size)
    ]
    assign_advantages(groups, config)
    return groups


@given(num_experiential=st.integers(0, 16), num_batches=st.sampled_from([1, 2, 4]), seed=st.integers(0, 99))
def test_every_mini_batch_holds_its_share_of_whole_experiential_groups(num_experiential, num_batches, seed):
    config = small_config(batch_size=16, mini_batch_size=16 // num_batches)
    batches = build_mini_batches(batch_of(num_experiential, config), config, np.random.default_rng(seed))
    counts = [batch.num_experiential_groups for batch in batches]
    assert sum(counts) == num_experiential
    assert max(counts) - min(counts) <= 1
    assert all(batch.num_trajectories == config.mini_batch_size * 4 for batch in batches)
    assert all(sum(row.is_replayed for row in batch.rows) == n for batch, n in zip(batches, counts, strict=True))
    questions = [row.prompt_ids[2] for batch in batches for row in batch.rows]
    assert sorted(questions) == sorted(list(range(16)) * 4)


@given(num_experiential=st.integers(0, 16), num_left_out=st.integers(0, 12), seed=st.integers(0, 9))
def test_groups_that_are_left_out_leave_mini_batches_of_nearly_one_size(num_experiential, num_left_out, seed):
    config, rng = small_config(batch_size=16, mini_batch_size=4), np.random.default_rng(seed)
    groups = [batch_of(num_experiential, config)[i] for i in rng.permutation(16)[num_left_out:]]
    batches = build_mini_batches(groups, config, rng)
    check_mini_batches(batches, config)
    assert sum(batch.num_trajectories for batch in batches) == 4 * len(groups)
    assert sum(batch.num_experiential_groups for batch in batches) == sum(item.has_replay for item in groups)


def test_groups_are_never_split_between_mini_batches():
    config = small_config(batch_size=8, mini_batch_size=2)
    batches = build_mini_batches(batch_of(4, config), config, np.random.default_rng(0))
    homes = [{int(row.prompt_ids[2]) for row in batch.rows} for batch in batches]
    assert all(not a & b for i, a in enumerate(homes) for b in homes[:i])


def test_replayed_row_carries_the_past_policys_log_probs():
    config = small_config(batch_size=1, mini_batch_size=1)
    (mixed,) = batch_of(1, config)
    assert group_rows(mixed, config)[-1].behavior_log_probs.tolist() == [-1.0, -2.0]


def test_without_importance_correction_old_log_probs_take_their_place():
    config = small_config(batch_size=1, mini_batch_size=1, corrects_importance=False)
    (mixed,) = batch_of(1, config)
    np.testing.assert_allclose(group_rows(mixed, config)[-1].behavior_log_probs, [-0.1, -0.2])


def test_tokens_count_for_the_entropy_bonus_of_every_row():
    config = small_config(batch_size=1, mini_batch_size=1)
    (batch,) = build_mini_batches(batch_of(1, config), config, np.random.default_rng(0))
    assert batch.num_tokens == 3 * 2 + 2


@pytest.mark.parametrize("damage", ["no advantages", "row missing", "log-probs cut"])
def test_malformed_groups_are_refused(damage):
    config = small_config(batch_size=1, mini_batch_size=1)
    (mixed,) = batch_of(1, config)
    if damage == "no advantages":
        mixed.advantages = None
    elif damage == "row missing":
        mixed.trajectories.pop()
    else:
        mixed.trajectories[0] = dataclasses.replace(
            mixed.trajectories[0], log_probs=np.zeros(1, dtype=np.float32), token_ids=np.zeros(2, dtype=np.int32)
        )
    with pytest.raises(ValueError, match="question 0"):
        build_mini_batches([mixed], config, np.random.default_rng(0))


def test_batch_of_another_size_is_refused():
    config = small_config()
    with pytest.raises(ValueError, match="expected 2 to 8 groups, got 1"):
        build_mini_batches(batch_of(0, config)[:1], config, np.random.default_rng(0))


def test_questions_left_are_those_that_are_neither_masked_nor_rewarded_alike():
    config = small_config(batch_size=4, mini_batch_size=4, experience_ratio=0.0, mask_range=HARD)
    groups = [group(0, [1, 0, 0, 0]), group(1, [1, 1, 0, 0]), group(2, [0, 0, 0, 0]), group(3, [0, 1, 0, 0])]
    assign_advantages(groups, config)
    (batch,) = build_mini_batches(groups, config, np.random.default_rng(0))
    assert batch.num_questions_left == 2
