"""Trajectory selectors with numbers computed by hand."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.methods.loading import TRAJECTORIES, build_part
from exgrpo_core.methods.protocols import CandidateColumns
from exgrpo_core.types import Experience


def candidates(rewards, entropies=None, num_tokens=None):
    count = len(rewards)
    ids, log_probs = np.arange(2, dtype=np.int32), np.array([-1.0, -3.0], dtype=np.float32)
    stored = [Experience(i, i, 0, i, reward, ids, log_probs) for i, reward in enumerate(rewards)]
    entropies = np.zeros(count, dtype=np.float32) if entropies is None else np.float32(entropies)
    lengths = np.ones(count, dtype=np.int64) if num_tokens is None else np.array(num_tokens)
    return CandidateColumns(entropies, entropies, entropies, lengths, np.zeros(count, dtype=np.int64), stored)


def chosen(name, columns, num_wanted):
    selector = build_part(TRAJECTORIES, SimpleNamespace(trajectory_selection=name, strategy_settings={}))
    return selector.choose(columns, num_wanted, np.random.default_rng(0))[0].tolist()


def test_columns_of_stored_trajectories():
    columns = candidates([1.0, 0.5])
    assert columns.rewards.tolist() == [1.0, 0.5]
    assert columns.rollout_steps.tolist() == [0, 1]
    assert columns.behavior_nlls.tolist() == [2.0, 2.0]
    assert columns.of_question(slice(1, 2)).rewards.tolist() == [0.5]


def test_the_released_rule_takes_the_lowest_sum_and_the_paper_the_lowest_mean():
    columns = candidates([1.0, 1.0], entropies=[0.5, 0.4], num_tokens=[2, 4])  # sums 1 and 1.6
    assert chosen("lowest_total_entropy", columns, 1) == [0]
    assert chosen("lowest_entropy", columns, 1) == [1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("newest", [5, 4, 3]),
        ("highest_reward", [0, 1, 3]),
        # Two of reward 1 and one of 0: variance 2/9, as one of 1 and two of 0, with the larger sum.
        ("highest_variance", [0, 1, 2]),
    ],
)
def test_repo_retrieves(name, expected):
    assert chosen(name, candidates([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), 3) == expected
    assert len(chosen(name, candidates([1.0, 0.0]), 3)) == 2


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), st.integers(1, 4))
def test_the_subset_of_highest_variance_is_that_of_all_subsets(rewards, num_wanted):
    found = chosen("highest_variance", candidates(rewards), num_wanted)
    best = max(np.var(part) for part in itertools.combinations(rewards, min(num_wanted, len(rewards))))
    assert np.var([rewards[i] for i in found]) == pytest.approx(best, abs=1e-12)
    assert found == sorted(set(found))
