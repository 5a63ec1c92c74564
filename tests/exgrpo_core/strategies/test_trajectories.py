"""Scores of candidates and the selectors that read them, with numbers computed by hand."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exgrpo_core.errors import NotRecordedError
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import TRAJECTORIES, build_part
from exgrpo_core.step.selection import mean_scores, within_budget
from exgrpo_core.types import Experience, TrajectoryScores

pytestmark = pytest.mark.slow


def candidates(rewards=(0, 0, 0), entropies=None, num_tokens=None, nlls=None, sampled=None):
    count = len(rewards)
    ids, log_probs = np.arange(2, dtype=np.int32), np.array([-1.0, -3.0], dtype=np.float32)
    stored = [Experience(i, i, 0, i, reward, ids, log_probs) for i, reward in enumerate(rewards)]
    means = [np.float32([0.0] * count if values is None else values) for values in (entropies, nlls, sampled)]
    lengths = np.ones(count, dtype=np.int64) if num_tokens is None else np.array(num_tokens)
    return CandidateColumns(means[0], means[1], lengths, means[2], np.zeros(count, dtype=np.int64), stored)


def choose(name, columns, num_wanted=1, rng=None):
    selector = build_part(TRAJECTORIES, SimpleNamespace(trajectory_selection=name, strategy_settings={}))
    positions, scores = selector.choose(columns, num_wanted, rng or np.random.default_rng(0))
    return positions.tolist(), scores


def test_a_column_that_was_not_recorded_raises():
    numbers = np.zeros(2, dtype=np.float32)
    recorded = CandidateColumns(numbers, numbers, np.ones(2, dtype=np.int64)).of_question(slice(1, 2))
    for name in ("sampled_entropies", "num_replays", "rewards", "rollout_steps", "behavior_nlls"):
        with pytest.raises(NotRecordedError, match=name):
            getattr(recorded, name)


def test_means_by_hand_on_ragged_candidates():
    half = math.log(0.5)
    scores = TrajectoryScores(
        [np.float32([half, 0.0]), np.float32([2 * half])], [np.float32([1.0, 2.0]), np.float32([0.25])]
    )
    means = mean_scores(scores)
    np.testing.assert_allclose(means.entropies, [1.5, 0.25])
    np.testing.assert_allclose(means.nlls, [math.log(2) / 2, math.log(4)], rtol=1e-6)
    # -pi log pi: 0.5 log 2 and 0; 0.25 log 4
    np.testing.assert_allclose(means.sampled_entropies, [math.log(2) / 4, math.log(4) / 4], rtol=1e-6)
    assert means.entropies.dtype == np.float32
    assert means.num_tokens.tolist() == [2, 1]


def test_long_trajectories_lose_no_precision():
    entropies = np.full(50_000, 0.1, dtype=np.float32)
    entropies[0] = 1e4
    means = mean_scores(TrajectoryScores([-entropies], [entropies]))
    assert means.entropies[0] == np.float32(entropies.astype(np.float64).mean())


@pytest.mark.parametrize(
    ("selection", "expected", "scores"),
    [
        ("lowest_entropy", 1, [2.0, 1.0, 3.0]), ("highest_entropy", 2, [-2.0, -1.0, -3.0]),
        ("lowest_nll", 0, [0.0, 1.0, 2.0]), ("lowest_perplexity", 0, [1.0, math.e, math.e**2]),
        ("lowest_sampled_entropy", 2, [0.3, 0.2, 0.1]), ("lowest_total_entropy", 1, [2.0, 1.0, 3.0]),
    ],
)  # fmt: skip
def test_lowest_score_is_chosen_and_the_oldest_of_equals(selection, expected, scores):
    columns = candidates(entropies=[2.0, 1.0, 3.0], nlls=[0.0, 1.0, 2.0], sampled=[0.3, 0.2, 0.1])
    chosen, values = choose(selection, columns)
    assert chosen == [expected]
    np.testing.assert_allclose(values, scores, rtol=1e-6)
    assert values.dtype == np.float32
    assert choose(selection, candidates())[0] == [0]


def test_random_choice_is_uniform_and_scores_nothing():
    rng = np.random.default_rng(1)
    picks = [choose("random", candidates(), rng=rng) for _ in range(3000)]
    assert stats.chisquare(np.bincount([chosen[0] for chosen, _ in picks])).pvalue > 0.01
    assert np.isnan(picks[0][1]).all()


def test_perplexity_beyond_float_range_is_no_error_and_a_score_that_is_not_a_number_is():
    chosen, values = choose("lowest_perplexity", candidates(nlls=[2000.0, 1000.0, 1.0]))
    assert chosen == [2]
    assert np.isinf(values[:2]).all()
    with pytest.raises(ValueError, match="lowest_entropy"):
        choose("lowest_entropy", candidates(entropies=[0.0, np.nan, 0.0]))


def test_columns_of_stored_trajectories():
    columns = candidates([1.0, 0.5])
    assert columns.rewards.tolist() == [1.0, 0.5]
    assert columns.rollout_steps.tolist() == [0, 1]
    assert columns.behavior_nlls.tolist() == [2.0, 2.0]
    assert columns.of_question(slice(1, 2)).rewards.tolist() == [0.5]


def test_the_released_rule_takes_the_lowest_sum_and_the_paper_the_lowest_mean():
    columns = candidates([1.0, 1.0], entropies=[0.5, 0.4], num_tokens=[2, 4])  # sums 1 and 1.6
    assert choose("lowest_total_entropy", columns)[0] == [0]
    assert choose("lowest_entropy", columns)[0] == [1]


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
    assert choose(name, candidates([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), 3)[0] == expected
    assert len(choose(name, candidates([1.0, 0.0]), 3)[0]) == 2


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), st.integers(1, 4))
def test_the_subset_of_highest_variance_is_that_of_all_subsets(rewards, num_wanted):
    found, _ = choose("highest_variance", candidates(rewards), num_wanted)
    best = max(np.var(part) for part in itertools.combinations(rewards, min(num_wanted, len(rewards))))
    assert np.var([rewards[i] for i in found]) == pytest.approx(best, abs=1e-12)
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("last_entropies", "budget", "expected"),
    [
        ([0.3, 0.1, 0.2], None, [0, 1, 2]), ([0.3, 0.1, 0.2], 3, [0, 1, 2]), ([0.3, 0.1, 0.2], 2, [1, 2]),
        ([0.2, 0.2, 0.2], 2, [0, 1]), ([np.nan, 0.1, np.nan, 0.05], 2, [2, 3]),
        ([np.nan, 0.1, np.nan, 0.05], 3, [0, 2, 3]), ([np.nan, np.nan, np.nan], 2, [1, 2]),
    ],
)  # fmt: skip
def test_the_budget_goes_to_the_lowest_entropy_then_to_those_never_scored(last_entropies, budget, expected):
    assert within_budget(np.float32(last_entropies), budget).tolist() == expected


def test_boundary_failures_are_of_middling_confidence_and_near_to_a_success():
    columns = candidates([1.0, 0.0, 0.0, 0.0, 1.0], nlls=[0.5, 0.5, 0.5, 2.0, 0.5])
    tokens = [[1, 2, 3, 4], [1, 2, 3, 9], [1, 8, 9], [1, 2, 3, 4], [8, 9, 8]]
    stored = [one._replace(token_ids=np.int32(ids)) for one, ids in zip(columns.experiences, tokens, strict=True)]
    columns = dataclasses.replace(columns, experiences=stored)
    # Nearest: 3 of 5 token ids of the first, 2 of 3 of the last; e^-2 is below .3, so 2 more.
    positions, scores = choose("boundary_failure", columns, 2)
    assert scores.tolist() == pytest.approx([np.inf, 0.4, 1 / 3, 2.0, np.inf])
    assert positions == [2, 1]
    assert choose("boundary_failure", columns, 3)[0] == [2, 1, 3]
