import pytest

from db.rows.score_intervals import describe_intervals, half_interval_95
from db.rows.scores import ComparisonRow


def test_half_an_interval_is_1_96_standard_errors():
    # 400 of 1,000 answers correct: sqrt(0.4 * 0.6 / 1000) = 0.01549, times 1.96.
    assert half_interval_95((0.4 * 0.6 / 1000) ** 0.5) == pytest.approx(0.030364, abs=1e-6)


def row(benchmark, num_seeds, is_paired=False):
    return ComparisonRow(benchmark, 2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, 0, num_seeds, is_paired)


def test_what_intervals_cover_is_said_once_and_by_benchmark_where_they_differ():
    cover = "95% intervals cover other questions and other samples, "
    assert describe_intervals([row("a", (1, 1))]) == cover + "not another training run of the first or the second"
    pairs = [row("a", (3, 3), True), row("b", (3, 3), True)]
    paired = "and other training seeds (3 and 3 were run, paired by training seed)"
    assert describe_intervals(pairs) == cover + paired
    unpaired = "and other training seeds (2 and 3 were run, not paired: both sides need the same seeds, each once)"
    assert describe_intervals([*pairs, row("c", (2, 3))], str.upper) == f"{cover}{paired} (A, B); {unpaired} (C)"
