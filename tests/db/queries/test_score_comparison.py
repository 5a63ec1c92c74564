from functools import partial

import pytest

from db.queries.paired_bootstrap import paired_bootstrap
from db.queries.score_comparison import compare_scores, differing_parts, list_items
from tests.db.recorded_scores import PARTS, event, record_scores


@pytest.fixture
def record(database, tmp_path):
    """Records evaluations, each of some benchmarks' events, takes them in and gives their ids."""
    return partial(record_scores, database, tmp_path / "runs")


def test_two_evaluations_are_compared_on_their_common_questions(database, record):
    first = record(event([0, 0, 4, 4]))
    second = record(event([4, 2, 3], comparability=PARTS | {"template": "none"}))
    (row,) = compare_scores(database, (("aime24", first),), (("aime24", second),), "paper")
    assert (row.num_questions, row.first, row.second) == (3, pytest.approx(1 / 3), pytest.approx(3 / 4))
    assert row.difference == pytest.approx(5 / 12)
    assert row.low <= 5 / 12 <= row.high
    assert (row.num_won, row.num_lost) == (2, 1)
    assert row.differing == ("template",)


def test_average_weighs_benchmarks_equally_and_needs_all_of_them(database, record):
    events = event([0, 0, 0, 0]), event([0], benchmark="amc")
    better = event([4, 0, 0, 0]), event([4], benchmark="amc")
    first, second = (
        tuple((name, run_id) for name in ("aime24", "amc")) for run_id in (record(*events), record(*better))
    )
    averages = (("both", ("aime24", "amc")), ("more", ("aime24", "amc", "minerva")))
    rows = {row.benchmark: row for row in compare_scores(database, first, second, "paper", averages)}
    assert list(rows) == ["aime24", "amc", "both"]
    assert rows["both"].difference == pytest.approx((0.25 + 1.0) / 2)
    assert (rows["both"].num_won, rows["both"].num_questions) == (2, 5)


def test_benchmarks_may_come_from_several_evaluations(database, record):
    first = ("aime24", record(event([0]))), ("amc", record(event([2], benchmark="amc")))
    second = record(event([1]), event([4], benchmark="amc"))
    rows = compare_scores(database, first, (("aime24", second), ("amc", second)), "paper")
    assert [(row.benchmark, row.difference) for row in rows] == [("aime24", 0.25), ("amc", 0.5)]


def test_items_are_those_that_differ_won_first(database, record):
    first, second = ((("aime24", record(event(counts))),) for counts in ([0, 4, 2, 1], [4, 0, 2, 2]))
    items = list_items(database, first, second, "paper", "aime24")
    assert [(item.question_id, item.difference) for item in items] == [("q0", 1.0), ("q3", 0.25), ("q1", -1.0)]


def test_evaluations_without_a_common_benchmark_or_question_have_no_rows(database, record):
    first = record(event([1]))
    other = record(event([1], question_ids=["elsewhere"]))
    assert compare_scores(database, (("aime24", first),), (("aime24", other),), "paper") == []
    assert compare_scores(database, (("aime24", first),), (("amc", first),), "paper") == []
    assert compare_scores(database, (("aime24", first),), (("aime24", "nothing-here"),), "paper") == []


def test_interval_covers_no_difference_where_there_is_none_and_not_where_there_is():
    same = paired_bootstrap([([0.0, 1.0] * 50, [1.0, 0.0] * 50)])
    assert same.low < 0.0 < same.high
    assert same.p_value > 0.5
    better = paired_bootstrap([([0.0] * 50, [1.0] * 40 + [0.0] * 10)])
    assert better.low > 0.6
    assert better.p_value < 0.001


def test_interval_is_as_wide_as_the_spread_of_questions_says():
    # Differences of 0 and 1, half of each: standard error 0.5 / sqrt(100), half interval 1.96 times that.
    difference = paired_bootstrap([([0.0] * 100, [0.0, 1.0] * 50)])
    assert (difference.low, difference.high) == (pytest.approx(0.402, abs=0.02), pytest.approx(0.598, abs=0.02))


def test_interval_of_an_average_of_two_is_narrower_by_the_root_of_two():
    one, two = ([0.0] * 100, [0.0, 1.0] * 50), ([0.0] * 100, [1.0, 0.0] * 50)
    difference = paired_bootstrap([one, two])
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * 0.05 / 2**0.5, abs=0.02)


def test_pairing_matters_more_than_the_spread_between_questions():
    hard_and_easy = [0.0, 1.0] * 50
    difference = paired_bootstrap([(hard_and_easy, [rate * 0.9 for rate in hard_and_easy])])
    assert difference.high < 0.0


def test_different_numbers_of_questions_are_refused():
    with pytest.raises(ValueError, match="expected the same ones twice, got 1 and 2"):
        paired_bootstrap([([1.0], [1.0, 0.0])])


def test_parts_that_differ_are_named():
    assert differing_parts({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ("b", "c")
