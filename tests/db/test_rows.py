import pytest

from exgrpo.db.rows.display_names import distinct_names
from exgrpo.db.rows.replays import age
from exgrpo.db.rows.scores import ComparisonRow, describe_intervals
from exgrpo.db.rows.spec_fields import algorithm_settings, experience_ratio


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


def test_only_names_that_are_shared_carry_an_id():
    names = distinct_names(
        [("20260101-000000-aaaaaa", "double"), ("20260101-000001-bbbbbb", "double"), ("x-1", "single")]
    )
    assert list(names.values()) == ["double (aaaaaa)", "double (bbbbbb)", "single"]
    alike = distinct_names([("left-1", "double"), ("right-1", "double"), ("other-2", "double")])
    assert list(alike.values()) == ["double (left-1)", "double (right-1)", "double (2)"]


@pytest.mark.parametrize(
    ("spec", "ratio"),
    [
        ({"algorithm": {"experience_ratio": 0.25}}, 0.25), ({"algorithm": {"experience_ratio": 0.0}}, 0.0),
        ({"algorithm": {}}, 0.5), ({"kind": "train"}, 0.5), ({"kind": "eval"}, 0.0),
    ],
)  # fmt: skip
def test_a_ratio_that_is_not_written_is_the_algorithms_default(spec, ratio):
    assert experience_ratio(spec) == ratio


def test_hyperparameters_that_are_not_written_have_the_algorithms_defaults():
    settings = algorithm_settings({"algorithm": {"bucket_center": 0.75}})
    assert (settings["bucket_center"], settings["bucket_spread"]) == (0.75, 1.0)
    assert settings["trajectory_selection"] == "lowest_entropy"


def test_a_replay_of_a_step_that_is_done_again_has_no_age():
    assert (age(7, 4), age(5, 5), age(5, 7)) == (3, None, None)
