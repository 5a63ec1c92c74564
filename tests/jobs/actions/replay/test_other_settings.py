import math
from collections import Counter

import numpy as np
import pytest

from exgrpo.db.rows.spec_fields import algorithm_settings
from exgrpo.jobs.actions.replay import other_settings
from exgrpo.jobs.actions.replay.other_settings import Candidate, RecordedDraw, Settings
from exgrpo_core import bucket_probabilities

K, BATCH = 4, 8
MEMBERS = {1: range(10), 2: range(10, 20), 3: range(20, 30), 4: range(30, 40)}
ALGORITHM = algorithm_settings({})
OWN = Settings(0.5, 1.0, 0.5, other_settings.selector_of(ALGORITHM))


def recorded(drawn=None, step=3):
    rates = np.arange(1, K + 1) / K
    probabilities = dict(enumerate(bucket_probabilities(rates, OWN.center, OWN.spread), start=1))
    return RecordedDraw(step, BATCH, K, MEMBERS, drawn or {0: 1, 11: 2, 12: 2, 33: 4}, probabilities)


def test_other_ratio_adds_or_drops_and_keeps_the_rest_and_never_more_than_there_are():
    more = other_settings.redraw(recorded(), Settings(0.5, 1.0, 0.75, OWN.estimator), 0)
    assert (len(more.kept), len(more.added), more.dropped) == (4, 2, {})
    less = other_settings.redraw(recorded(), Settings(0.5, 1.0, 0.25, OWN.estimator), 0)
    assert (len(less.kept), less.added, len(less.dropped)) == (2, {}, 2)
    assert less.kept.keys() | less.dropped.keys() == {0, 11, 12, 33}
    none = other_settings.redraw(recorded(), Settings(0.5, 1.0, 0.0, OWN.estimator), 0)
    assert none.kept == none.added == {}
    small = RecordedDraw(3, 100, K, {1: [0, 1], 2: [2]}, {0: 1}, {1: 0.5, 2: 0.5})
    whole = other_settings.redraw(small, OWN, 0)
    assert whole.kept.keys() | whole.added.keys() == {0, 1, 2}


def test_draws_follow_the_new_probabilities():
    settings = Settings(1.0, 0.4, 0.5, OWN.estimator)
    rng, counts = np.random.default_rng(0), Counter()
    shares = list(recorded().probabilities.values())
    for step in range(2000):
        buckets = rng.choice(np.arange(1, K + 1), 4, p=shares)
        drawn = {int(10 * (bucket - 1) + index): int(bucket) for index, bucket in enumerate(buckets)}
        draw = other_settings.redraw(recorded(drawn, step), settings, 0)
        counts.update([*draw.kept.values(), *draw.added.values()])
    expected = bucket_probabilities(np.arange(1, K + 1) / K, 1.0, 0.4)
    assert [counts[bucket] / 8000 for bucket in range(1, K + 1)] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("lowest_entropy", 1), ("highest_entropy", 2), ("lowest_nll", 3), ("lowest_perplexity", 3)],
)
def test_estimators_choose_by_recorded_scores(estimator, expected):
    scores = [(0.1, 0.9), (0.8, 0.5), (0.4, 0.2), (math.nan, 0.0)]
    scored = [Candidate(number, 1, *score, 7) for number, score in enumerate(scores, start=1)]
    rule = other_settings.selector_of(ALGORITHM, estimator)
    assert other_settings.rechoose(scored, rule, None).trajectory_id == expected
    assert other_settings.rechoose(scored[3:], rule, None) is None
    assert other_settings.rechoose(scored, None, 2) == scored[1]
    assert other_settings.rechoose(scored, None, None) is None
    for name in ("lowest_sampled_entropy", "random"):  # which do not follow from recorded scores
        assert not other_settings.is_recomputable(other_settings.selector_of(ALGORITHM, name))
    assert other_settings.selector_of(ALGORITHM, "elsewhere:Rule") is None
