import math
from functools import partial

import pytest

from exgrpo.db.ingest import annotations, events
from exgrpo.db.queries.benchmarks import compare_scores, list_items, list_scores
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from tests.db.conftest import on_sqlite
from tests.db.recorded_scores import PARTS, event, record_scores

pytestmark = on_sqlite


@pytest.fixture
def record(database, tmp_path):
    return partial(record_scores, database, tmp_path / "runs")


def test_means_of_reward_parts_are_beside_the_scores_and_empty_where_none_was_asked_for(database, record):
    with_parts = record(event([4, 0, 2], reward_parts={"format": 0.75, "mine:reward": -1.5}))
    without = record(event([4, 0, 2], benchmark="amc"))
    (row,) = list_scores(database, run_id=with_parts, scheme="training")
    assert row.reward_means == {"format": 0.75, "mine:reward": -1.5}
    assert [row.reward_means for row in list_scores(database, run_id=without)] == [{}] * 2


def test_benchmark_recorded_by_two_attempts_counts_once(database, record):
    run_id = record(event([4, 0, 2]), times=2)
    assert len(list_scores(database, run_id=run_id)) == 2


def test_score_says_how_its_checkpoint_was_chosen(database, record):
    for chosen_as, words in (("last", ", the last"), ("best", ", best on held-out questions"), (None, "")):
        (row,) = list_scores(database, run_id=record(event([1]), chosen_as=chosen_as), scheme="paper")
        assert row.choice == words


@pytest.fixture
def train_from(database, tmp_path):
    def register(run_id, source):
        spec = load_preset("chains-exgrpo")
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})
        run = RunDirectory.create(tmp_path / "runs", spec, run_id=run_id)
        events.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))

    return register


def test_a_scored_checkpoint_names_its_run_and_method_and_another_model_itself(database, record, train_from):
    train_from("run-1", "hub/backbone")
    record(event([1]))
    (row,) = list_scores(database, source_run_id="run-1", scheme="paper")
    assert (row.source_name, row.method, row.backbone) == (load_preset("chains-exgrpo").name, "ExGRPO", "hub/backbone")
    record(event([1], source_run_id=None, source_step=None))
    row = list_scores(database, scheme="paper", limit=1)[0]
    assert (row.source_name, row.method, row.backbone) == (None, "", "a-model")


def test_a_run_that_began_with_another_runs_checkpoint_keeps_the_first_backbone(database, record, train_from):
    train_from("sft", "hub/backbone")
    train_from("rl", "sft@700")
    train_from("run-1", "rl@last")
    train_from("run-2", "gone@10")
    for run_id in ("run-1", "run-2"):
        record(event([1], source_run_id=run_id))
    (kept,) = list_scores(database, source_run_id="run-1", scheme="paper")
    (unknown,) = list_scores(database, source_run_id="run-2", scheme="paper")
    assert (kept.backbone, unknown.backbone) == ("hub/backbone", "gone@10")


def test_archived_evaluation_is_left_out_unless_asked_for(database, record):
    run_id = record(event([1]))
    annotations.change_run(database, run_id, is_archived=True)
    assert list_scores(database) == []
    assert len(list_scores(database, run_id=run_id)) == 2


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
    worse = event([0, 0, 0, 0]), event([0], benchmark="amc")
    better = event([4, 0, 0, 0]), event([4], benchmark="amc")
    first, second = (
        tuple((name, run_id) for name in ("aime24", "amc")) for run_id in (record(*worse), record(*better))
    )
    averages = (("both", ("aime24", "amc")), ("more", ("aime24", "amc", "minerva")))
    rows = {row.benchmark: row for row in compare_scores(database, first, second, "paper", averages)}
    assert list(rows) == ["aime24", "amc", "both"]
    assert rows["both"].difference == pytest.approx((0.25 + 1.0) / 2)
    assert (rows["both"].num_won, rows["both"].num_questions) == (2, 5)


def test_p_values_are_corrected_for_all_benchmarks_of_a_comparison(database, record):
    names = ("aime24", "amc", "math500")
    run_ids = [
        record(*(event(counts * 5, benchmark=name) for name in names)) for counts in ([1] * 6, [2, 0, 1, 2, 1, 1])
    ]
    first, second = (tuple((name, run_id) for name in names) for run_id in run_ids)
    (alone,) = compare_scores(database, first[:1], second[:1], "paper")
    assert 0.1 < alone.p_value < 1 / 3
    assert [row.p_value for row in compare_scores(database, first, second, "paper")] == [3 * alone.p_value] * 3


def test_training_seeds_of_each_side_are_counted_and_make_intervals_wider(database, record):
    sides = {
        side: [record(event(counts, source_run_id=f"{side}-{seed}")) for seed, counts in enumerate(all_counts)]
        for side, all_counts in (("a", ([0, 1, 2, 3], [0, 0, 1, 2], [1, 1, 2, 4])), ("b", ([4, 3, 3, 4], [2, 1, 2, 3])))
    }
    scored = [tuple(("aime24", run_id) for run_id in runs) for runs in sides.values()]
    (row,) = compare_scores(database, *scored, "paper")
    assert row.num_seeds == (3, 2)
    assert (row.first, row.second) == (pytest.approx(17 / 48), pytest.approx(22 / 32))
    assert row.difference == pytest.approx(22 / 32 - 17 / 48)
    (alone,) = compare_scores(database, scored[0][:1], scored[1][:1], "paper")
    assert row.high - row.low > alone.high - alone.low
    items = {item.question_id: item.first for item in list_items(database, *scored, "paper", "aime24")}
    assert items["q3"] == pytest.approx(9 / 12)


@pytest.fixture
def record_trained(database, record, tmp_path):
    """Records a training run of a seed and of a warm model's, and its evaluation, and gives that of `aime24`."""

    def record_seed(run_id, counts, seed, warm_seed):
        spec = TrainSpec.model_validate({"seed": seed, "model": {"warm_seed": warm_seed}})
        run = RunDirectory.create(tmp_path / "runs", spec, run_id=run_id)
        events.register_run(database, run.read_run_info(), spec.model_dump(mode="json"))
        return "aime24", record(event(counts, source_run_id=run_id))

    return record_seed


def test_runs_of_the_same_seeds_are_paired_whatever_they_are_called(database, record_trained):
    # By seed the second is 1/4 better on every question; the runs' ids are in another order.
    first = record_trained("a", [0, 1], 0, 0), record_trained("b", [2, 3], 1, 1)
    second = record_trained("d", [1, 2], 0, 0), record_trained("c", [3, 4], 1, 1)
    (row,) = compare_scores(database, first, second, "paper")
    assert row.is_paired
    assert row.difference == pytest.approx(0.25)
    assert math.isnan(row.low)  # both questions changed alike
    (unpaired,) = compare_scores(database, first, (second[0], record_trained("e", [3, 4], 1, 2)), "paper")
    assert not unpaired.is_paired
    assert unpaired.difference == 0.25
    assert unpaired.low < 0.25 < unpaired.high


def test_sides_whose_seeds_are_not_the_same_are_not_paired(database, record, record_trained):
    run = [record_trained(f"run-{number}", [0, 1], number, 0) for number in range(3)]
    again = record_trained("again", [0, 1], 1, 0)
    other = [("aime24", record(event([0, 1], source_run_id=name, model=name))) for name in ("elsewhere", "other")]
    for first, second in (
        (run[:2], run),
        (run[:2], run[1:]),
        ((*run[:2], again), (*run[:2], again)),
        (other, other),
        (run[:1], run[:1]),
    ):
        (row,) = compare_scores(database, tuple(first), tuple(second), "paper")
        assert not row.is_paired


def test_average_is_left_out_where_benchmarks_have_different_seeds(database, record):
    def scored(*names):
        return tuple(
            (name, record(event([1, 2], benchmark=name, source_run_id=seed)))
            for seed in ("seed-1", "seed-2")
            for name in names
        )

    averages = (("both", ("aime24", "amc")),)
    whole = scored("aime24", "amc")
    rows = compare_scores(database, whole, whole, "paper", averages)
    assert [(row.benchmark, row.num_seeds) for row in rows] == [("aime24", (2, 2)), ("amc", (2, 2)), ("both", (2, 2))]
    assert [row.benchmark for row in compare_scores(database, whole, whole[:-1], "paper", averages)] == [
        "aime24",
        "amc",
    ]


def test_evaluations_without_a_common_benchmark_or_question_have_no_rows(database, record):
    first = record(event([1]))
    other = record(event([1], question_ids=["elsewhere"]))
    assert compare_scores(database, (("aime24", first),), (("aime24", other),), "paper") == []
    assert compare_scores(database, (("aime24", first),), (("amc", first),), "paper") == []
    assert compare_scores(database, (("aime24", first),), (("aime24", "nothing-here"),), "paper") == []
