import pytest

from db.rows.score_intervals import half_interval_95


def test_half_an_interval_is_1_96_standard_errors():
    # 400 of 1,000 answers correct: sqrt(0.4 * 0.6 / 1000) = 0.01549, times 1.96.
    assert half_interval_95((0.4 * 0.6 / 1000) ** 0.5) == pytest.approx(0.030364, abs=1e-6)
