import pytest

from db.rows.replay_of_spec import experience_ratio
from db.rows.score_intervals import half_interval_95


def test_half_an_interval_is_1_96_standard_errors():
    # 400 of 1,000 answers correct: sqrt(0.4 * 0.6 / 1000) = 0.01549, times 1.96.
    assert half_interval_95((0.4 * 0.6 / 1000) ** 0.5) == pytest.approx(0.030364, abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "ratio"),
    [
        ({"algorithm": {"experience_ratio": 0.25}}, 0.25),
        ({"algorithm": {"experience_ratio": 0.0}}, 0.0),
        ({"algorithm": {}}, 0.5),
        ({"kind": "train"}, 0.5),
        ({"kind": "eval"}, 0.0),
    ],
)
def test_a_ratio_that_is_not_written_is_the_algorithms_default(spec, ratio):
    assert experience_ratio(spec) == ratio
