import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exgrpo_core.config import TrajectorySelection
from exgrpo_core.experience_management.trajectory_selection import (
    SCORES,
    CandidateMeans,
    choose,
    mean_scores,
    within_budget,
)
from exgrpo_core.types import TrajectoryScores

RNG = np.random.default_rng(0)


def scores_of(log_probs, entropies):
    return TrajectoryScores([np.float32(row) for row in log_probs], [np.float32(row) for row in entropies])


def means_of(entropies=(0, 0, 0), nlls=(0, 0, 0), sampled=(0, 0, 0)):
    lengths = np.ones(len(entropies), dtype=np.int64)
    return CandidateMeans(np.float32(entropies), np.float32(nlls), np.float32(sampled), lengths)


def test_every_rule_has_a_score():
    missing = {*TrajectorySelection} - {TrajectorySelection.RANDOM} - SCORES.keys()
    assert not missing, f"SCORES of trajectory_selection.py: add the score of {', '.join(missing)}."


def test_means_by_hand_on_ragged_candidates():
    half = math.log(0.5)
    means = mean_scores(scores_of([[half, 0.0], [2 * half]], [[1.0, 2.0], [0.25]]))
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


def test_no_candidates_have_no_means():
    assert mean_scores(TrajectoryScores([], [])).entropies.size == 0


@pytest.mark.parametrize(
    ("log_probs", "entropies"), [([[-1.0]], [[1.0, 2.0]]), ([[-1.0]], []), ([[-1.0], []], [[1.0], []])]
)
def test_scores_that_do_not_line_up_are_refused(log_probs, entropies):
    with pytest.raises(ValueError, match=r"^scores"):
        mean_scores(scores_of(log_probs, entropies))


@pytest.mark.parametrize(
    ("selection", "expected", "scores"),
    [
        (TrajectorySelection.LOWEST_ENTROPY, 1, [2.0, 1.0, 3.0]),
        (TrajectorySelection.HIGHEST_ENTROPY, 2, [-2.0, -1.0, -3.0]),
        (TrajectorySelection.LOWEST_NLL, 0, [0.0, 1.0, 2.0]),
        (TrajectorySelection.LOWEST_PERPLEXITY, 0, [1.0, math.e, math.e**2]),
        (TrajectorySelection.LOWEST_SAMPLED_ENTROPY, 2, [0.3, 0.2, 0.1]),
    ],
)
def test_lowest_score_is_chosen(selection, expected, scores):
    means = means_of([2.0, 1.0, 3.0], [0.0, 1.0, 2.0], [0.3, 0.2, 0.1])
    chosen, values = choose(selection, means, RNG)
    assert chosen == expected
    np.testing.assert_allclose(values, scores, rtol=1e-6)
    assert values.dtype == np.float32


@pytest.mark.parametrize("selection", [s for s in TrajectorySelection if s is not TrajectorySelection.RANDOM])
def test_ties_go_to_the_oldest(selection):
    assert choose(selection, means_of(), RNG)[0] == 0


def test_random_choice_is_uniform_and_scores_nothing():
    rng = np.random.default_rng(1)
    picks = [choose(TrajectorySelection.RANDOM, means_of(), rng) for _ in range(3000)]
    assert stats.chisquare(np.bincount([chosen for chosen, _ in picks])).pvalue > 0.01
    assert np.isnan(picks[0][1]).all()


def test_perplexity_beyond_float_range_is_no_error():
    chosen, values = choose(TrajectorySelection.LOWEST_PERPLEXITY, means_of(nlls=[2000.0, 1000.0, 1.0]), RNG)
    assert chosen == 2
    assert np.isinf(values[:2]).all()


def test_score_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="lowest_entropy is not a number"):
        choose(TrajectorySelection.LOWEST_ENTROPY, means_of([0.0, np.nan, 0.0]), RNG)


def test_question_without_candidates_is_refused():
    with pytest.raises(ValueError, match="at least one candidate"):
        choose(TrajectorySelection.RANDOM, means_of((), (), ()), RNG)


def brute_force_scores(log_probs, entropies):
    nll = -sum(log_probs) / len(log_probs)
    entropy = sum(entropies) / len(entropies)
    return {
        TrajectorySelection.LOWEST_ENTROPY: entropy,
        TrajectorySelection.HIGHEST_ENTROPY: -entropy,
        TrajectorySelection.LOWEST_NLL: nll,
        TrajectorySelection.LOWEST_PERPLEXITY: math.exp(nll),
        TrajectorySelection.LOWEST_SAMPLED_ENTROPY: -sum(math.exp(p) * p for p in log_probs) / len(log_probs),
    }


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_choice_equals_brute_force_on_ragged_lengths(lengths, seed):
    rng = np.random.default_rng(seed)
    scores = scores_of([-rng.exponential(0.5, n) for n in lengths], [rng.exponential(0.7, n) for n in lengths])
    pairs = zip(scores.log_probs, scores.entropies, strict=True)
    brute = [brute_force_scores(log_probs.tolist(), entropies.tolist()) for log_probs, entropies in pairs]
    for selection in brute[0]:
        chosen, values = choose(selection, mean_scores(scores), rng)
        expected = [scored[selection] for scored in brute]
        np.testing.assert_allclose(values, expected, rtol=1e-5)
        assert expected[chosen] == pytest.approx(min(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("last_entropies", "budget", "expected"),
    [
        ([0.3, 0.1, 0.2], None, [0, 1, 2]),
        ([0.3, 0.1, 0.2], 3, [0, 1, 2]),
        ([0.3, 0.1, 0.2], 2, [1, 2]),
        ([0.2, 0.2, 0.2], 2, [0, 1]),
        ([np.nan, 0.1, np.nan, 0.05], 2, [2, 3]),
        ([np.nan, 0.1, np.nan, 0.05], 3, [0, 2, 3]),
        ([np.nan, np.nan, np.nan], 2, [1, 2]),
        ([], 2, []),
    ],
)
def test_the_budget_goes_to_the_surest_then_to_those_never_scored(last_entropies, budget, expected):
    assert within_budget(np.float32(last_entropies), budget).tolist() == expected
