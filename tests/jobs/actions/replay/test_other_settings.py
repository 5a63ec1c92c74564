import math
from collections import Counter

import numpy as np
import pytest

from exgrpo.db.rows.replays import StoredRow
from exgrpo.db.rows.spec_fields import algorithm_settings
from exgrpo.jobs.actions.replay import other_settings
from exgrpo.jobs.actions.replay.other_settings import RecordedDraw
from exgrpo_core import bucket_probabilities

K, BATCH = 4, 8
MEMBERS = {bucket: np.arange(10 * (bucket - 1), 10 * bucket) for bucket in range(1, K + 1)}
ALGORITHM = algorithm_settings({})
DRAWN = {0: 1, 11: 2, 12: 2, 33: 4}


def recorded(drawn=None, step=3):
    probabilities = dict(enumerate(bucket_probabilities(np.arange(1, K + 1) / K, 0.5, 1.0), start=1))
    return RecordedDraw(step, BATCH, MEMBERS, drawn or DRAWN, probabilities)


def test_other_ratio_adds_or_drops_and_keeps_the_rest_and_never_more_than_there_are():
    assert other_settings.redraw(recorded(), 0.5, 1.0, 0.5) == DRAWN
    more = other_settings.redraw(recorded(), 0.5, 1.0, 0.75)
    assert (len(more), more.items() >= DRAWN.items()) == (6, True)
    less = other_settings.redraw(recorded(), 0.5, 1.0, 0.25)
    assert (len(less), less.items() <= DRAWN.items()) == (2, True)
    assert other_settings.redraw(recorded(), 0.5, 1.0, 0.0) == {}
    small = RecordedDraw(3, 100, {1: np.array([0, 1]), 2: np.array([2])}, {0: 1}, {1: 0.5, 2: 0.5})
    assert other_settings.redraw(small, 0.5, 1.0, 0.5) == {0: 1, 1: 1, 2: 2}


def test_draws_follow_the_new_probabilities():
    rng, counts = np.random.default_rng(0), Counter()
    shares = list(recorded().probabilities.values())
    for step in range(2000):
        buckets = rng.choice(np.arange(1, K + 1), 4, p=shares)
        drawn = {int(10 * (bucket - 1) + index): int(bucket) for index, bucket in enumerate(buckets)}
        counts.update(other_settings.redraw(recorded(drawn, step), 1.0, 0.4, 0.5).values())
    expected = bucket_probabilities(np.arange(1, K + 1) / K, 1.0, 0.4)
    assert [counts[bucket] / 8000 for bucket in range(1, K + 1)] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("lowest_entropy", 1), ("highest_entropy", 2), ("lowest_nll", 3), ("lowest_perplexity", 3)],
)
def test_estimators_choose_by_recorded_scores(estimator, expected):
    scores = [(0.1, 0.9), (0.8, 0.5), (0.4, 0.2), (math.nan, 0.0)]
    scored = [StoredRow(0, number, 1, 1, 7, *score) for number, score in enumerate(scores, start=1)]
    rule = other_settings.selector_of(ALGORITHM, estimator)
    assert other_settings.rechoose(scored, rule) == expected
    assert other_settings.rechoose(scored[3:], rule) is None
    for name in ("lowest_sampled_entropy", "random"):  # which do not follow from recorded scores
        assert not other_settings.is_recomputable(other_settings.selector_of(ALGORITHM, name))
    assert other_settings.selector_of(ALGORITHM, "elsewhere:Rule") is None
