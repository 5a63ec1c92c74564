import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exgrpo_core.experience_management.bucket_sampler import (
    bucket_probabilities,
    draw_bucket_counts,
    sample_buckets,
    sample_members,
)


def rng_of(seed=0):
    return np.random.default_rng(seed)


def test_gaussian_weights_by_hand():
    # exp(-x^2 / 2) at x = -1, 0, 1: 0.606531, 1, 0.606531; sum 2.213061
    np.testing.assert_allclose(
        bucket_probabilities([0.25, 0.5, 0.75], 0.5, 0.25), [0.274069, 0.451863, 0.274069], atol=1e-6
    )
    # The paper's spread is nearly flat: e^(.375^2 / 2) from the middle to the end.
    flat = bucket_probabilities(np.arange(1, 8) / 8, 0.5, 1.0)
    assert flat.max() / flat.min() == pytest.approx(1.0728, abs=1e-4)
    # Narrow weights far from every bucket go to the nearest.
    np.testing.assert_allclose(bucket_probabilities([0.1, 0.2], 1.0, 0.001), [0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: bucket_probabilities([np.nan], 0.5, 1.0), "correctness_rates"),
        (lambda: bucket_probabilities([0.5], 0.5, 0.0), "spread"),
        (lambda: bucket_probabilities([0.5], np.inf, 1.0), "center"),
        (lambda: sample_buckets([-1, 2], [0.5, 0.5], 1, rng_of()), "bucket_sizes"),
        (lambda: sample_buckets([1, 2], [1.0], 1, rng_of()), "probabilities"),
        (lambda: sample_buckets([1, 2], [0.5, np.nan], 1, rng_of()), "probabilities"),
        (lambda: sample_buckets([1, 2], [0.5, 0.5], 4, rng_of()), "num_samples"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        call()


class ScriptedBinomial:
    """Answers `binomial` with given numbers and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def binomial(self, count, share):
        self.asked.append((count, share))
        return self.answers.pop(0)


def test_counts_come_from_one_binomial_after_another():
    # p = .2, .3, .5: Bin(10, .2), Bin(10 - 3, .3 / .8), the last takes the rest.
    rng = ScriptedBinomial(3, 2)
    assert sample_buckets([20, 20, 20], [0.2, 0.3, 0.5], 10, rng).tolist() == [3, 2, 5]
    assert rng.asked == [(10, 0.2), (7, pytest.approx(0.375))]


def test_probabilities_are_renormalized_over_buckets_that_hold_questions():
    # Bucket 1 is empty: .2 and .5 become 2/7 and 5/7.
    rng = ScriptedBinomial(3)
    draw = draw_bucket_counts([20, 0, 20], [0.2, 0.3, 0.5], 10, rng)
    assert draw.counts.tolist() == [3, 0, 7]
    assert rng.asked == [(10, pytest.approx(2 / 7))]
    np.testing.assert_allclose(draw.probabilities, [2 / 7, 0.0, 5 / 7])


def test_what_a_short_bucket_cannot_give_is_drawn_among_those_with_room():
    # First round 6, 1, 3 of sizes 2, 9, 9: 4 too many for bucket 0. Second round over .3 and .5: 1 and 3.
    rng = ScriptedBinomial(6, 1, 1)
    draw = draw_bucket_counts([2, 9, 9], [0.2, 0.3, 0.5], 10, rng)
    assert draw.counts.tolist() == [2, 2, 6]
    assert draw.overflows.tolist() == [4, 0, 0]
    assert rng.asked[2] == (4, pytest.approx(0.375))
    # 4, 2, 0 of sizes 1, 3, 9: 3 too many for bucket 0. Then 3, 0 of room 1, 9: 2 too many for bucket 1.
    draw = draw_bucket_counts([1, 3, 9], [0.8, 0.1, 0.1], 6, ScriptedBinomial(4, 2, 3))
    assert (draw.counts.tolist(), draw.overflows.tolist()) == ([1, 3, 2], [3, 2, 0])


def test_room_decides_where_all_probabilities_left_are_zero():
    nothing = draw_bucket_counts([0, 0], [0.5, 0.5], 0, rng_of())
    assert nothing.counts.tolist() == nothing.probabilities.tolist() == [0, 0]
    assert sample_buckets([2, 3, 4], [1.0, 0.0, 0.0], 9, rng_of()).tolist() == [2, 3, 4]
    assert sample_buckets([0, 5, 0], [1.0, 0.0, 0.0], 4, rng_of()).tolist() == [0, 4, 0]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), min_size=1, max_size=12),
    st.data(),
    st.integers(0, 2**32 - 1),
)
def test_counts_sum_to_n_and_never_exceed_a_bucket(buckets, data, seed):
    sizes, weights = np.array([b[0] for b in buckets]), np.array([b[1] for b in buckets])
    num_samples = data.draw(st.integers(0, int(sizes.sum())))
    draw = draw_bucket_counts(sizes, weights, num_samples, rng_of(seed))
    assert draw.counts.sum() == num_samples
    assert np.all((draw.counts >= 0) & (draw.counts <= sizes))
    assert np.all(draw.overflows >= 0)
    assert np.all(draw.counts[draw.overflows > 0] == sizes[draw.overflows > 0])
    members = [1000 * position + np.arange(size) for position, size in enumerate(sizes)]
    drawn = sample_members(members, draw.counts, rng_of(seed))
    flat = np.concatenate(drawn)
    assert len(set(flat.tolist())) == flat.size == num_samples
    assert [part.size for part in drawn] == draw.counts.tolist()
    assert all(set(part.tolist()) <= set(member.tolist()) for part, member in zip(drawn, members, strict=True))


def test_members_are_drawn_uniformly():
    rng = rng_of(7)
    members = [np.arange(10, 30), np.arange(100, 105)]
    tallies = np.zeros(105)
    for _ in range(4000):
        first, second = sample_members(members, [5, 2], rng)
        tallies[first] += 1
        tallies[second] += 1
    assert stats.chisquare(tallies[10:30]).pvalue > 0.01
    assert stats.chisquare(tallies[100:105]).pvalue > 0.01
