import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exgrpo_core.methods.loading import TRAJECTORIES, build_part
from exgrpo_core.methods.protocols import CandidateColumns
from exgrpo_core.step.selection import mean_scores, within_budget
from exgrpo_core.types import TrajectoryScores

RNG = np.random.default_rng(0)
SCORED = ("lowest_entropy", "highest_entropy", "lowest_nll", "lowest_perplexity", "lowest_sampled_entropy")


def choose(selection, columns, rng):
    selector = build_part(TRAJECTORIES, SimpleNamespace(trajectory_selection=selection, strategy_settings={}))
    (position,), scores = selector.choose(columns, 1, rng)
    return int(position), scores


def scores_of(log_probs, entropies):
    return TrajectoryScores([np.float32(row) for row in log_probs], [np.float32(row) for row in entropies])


def means_of(entropies=(0, 0, 0), nlls=(0, 0, 0), sampled=(0, 0, 0)):
    lengths = np.ones(len(entropies), dtype=np.int64)
    return CandidateColumns(np.float32(entropies), np.float32(nlls), np.float32(sampled), lengths)


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
        ("lowest_entropy", 1, [2.0, 1.0, 3.0]),
        ("highest_entropy", 2, [-2.0, -1.0, -3.0]),
        ("lowest_nll", 0, [0.0, 1.0, 2.0]),
        ("lowest_perplexity", 0, [1.0, math.e, math.e**2]),
        ("lowest_sampled_entropy", 2, [0.3, 0.2, 0.1]),
    ],
)
def test_lowest_score_is_chosen(selection, expected, scores):
    means = means_of([2.0, 1.0, 3.0], [0.0, 1.0, 2.0], [0.3, 0.2, 0.1])
    chosen, values = choose(selection, means, RNG)
    assert chosen == expected
    np.testing.assert_allclose(values, scores, rtol=1e-6)
    assert values.dtype == np.float32


@pytest.mark.parametrize("selection", SCORED)
def test_ties_go_to_the_oldest(selection):
    assert choose(selection, means_of(), RNG)[0] == 0


def test_random_choice_is_uniform_and_scores_nothing():
    rng = np.random.default_rng(1)
    picks = [choose("random", means_of(), rng) for _ in range(3000)]
    assert stats.chisquare(np.bincount([chosen for chosen, _ in picks])).pvalue > 0.01
    assert np.isnan(picks[0][1]).all()


def test_perplexity_beyond_float_range_is_no_error():
    chosen, values = choose("lowest_perplexity", means_of(nlls=[2000.0, 1000.0, 1.0]), RNG)
    assert chosen == 2
    assert np.isinf(values[:2]).all()


def test_score_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="lowest_entropy is not a number"):
        choose("lowest_entropy", means_of([0.0, np.nan, 0.0]), RNG)


def brute_force_scores(log_probs, entropies):
    nll = -sum(log_probs) / len(log_probs)
    entropy = sum(entropies) / len(entropies)
    return {
        "lowest_entropy": entropy,
        "highest_entropy": -entropy,
        "lowest_nll": nll,
        "lowest_perplexity": math.exp(nll),
        "lowest_sampled_entropy": -sum(math.exp(p) * p for p in log_probs) / len(log_probs),
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
def test_the_budget_goes_to_the_lowest_entropy_then_to_those_never_scored(last_entropies, budget, expected):
    assert within_budget(np.float32(last_entropies), budget).tolist() == expected
