import math
from functools import partial

import pytest

from db.ingest import annotations, events
from db.queries.benchmarks import list_scores
from jobs.runs.directory import RunDirectory
from jobs.specs.train import load_preset
from tests.db.recorded_scores import event, record_scores


@pytest.fixture
def record(database, tmp_path):
    """Records evaluations, each of some benchmarks' events, takes them in and gives their ids."""
    return partial(record_scores, database, tmp_path / "runs")


def test_score_is_the_mean_over_questions_with_an_error_clustered_over_them(database, record):
    run_id = record(event([4, 0, 2]))
    rows = {row.scheme: row for row in list_scores(database, run_id=run_id)}
    assert rows["paper"].score == pytest.approx(0.5)
    # Rates 1, 0, 0.5: standard deviation 0.5, over the root of three questions.
    assert rows["paper"].standard_error == pytest.approx(0.5 / math.sqrt(3))
    assert (rows["paper"].metric, rows["paper"].num_questions, rows["paper"].source_step) == ("Avg@4", 3, 50)
    assert rows["training"].outcomes == {"timeout": 1}


def test_means_of_reward_parts_are_beside_the_scores_and_empty_where_none_was_asked_for(database, record):
    with_parts = record(event([4, 0, 2], reward_parts={"format": 0.75, "mine:reward": -1.5}))
    without = record(event([4, 0, 2], benchmark="amc"))
    (row,) = list_scores(database, run_id=with_parts, scheme="training")
    assert row.reward_means == {"format": 0.75, "mine:reward": -1.5}
    assert [row.reward_means for row in list_scores(database, run_id=without)] == [{}] * 2


def test_benchmark_recorded_by_two_attempts_counts_once(database, record):
    run_id = record(event([4, 0, 2]), times=2)
    assert len(list_scores(database, run_id=run_id)) == 2


def test_scores_are_found_by_the_run_that_they_are_of(database, record):
    record(event([1]))
    other = record(event([1], source_run_id="run-2"))
    assert [row.run_id for row in list_scores(database, source_run_id="run-2", scheme="paper")] == [other]
    assert len(list_scores(database, scheme="paper")) == 2


def test_score_says_how_its_checkpoint_was_chosen(database, record):
    for chosen_as, words in (("last", ", the last"), ("best", ", best on held-out questions"), (None, "")):
        (row,) = list_scores(database, run_id=record(event([1]), chosen_as=chosen_as), scheme="paper")
        assert row.choice == words


def test_a_scored_checkpoint_names_its_run_and_method_and_another_model_itself(database, record, tmp_path):
    source = RunDirectory.create(tmp_path / "runs", load_preset("chains-exgrpo"), run_id="run-1")
    events.register_run(database, source.read_run_info(), source.job_spec().model_dump(mode="json"))
    record(event([1]))
    (row,) = list_scores(database, source_run_id="run-1", scheme="paper")
    assert (row.source_name, row.method, row.backbone) == (
        source.read_run_info()["name"],
        "ExGRPO",
        "chains-warm",
    )
    record(event([1], source_run_id=None, source_step=None))
    row = list_scores(database, scheme="paper", limit=1)[0]
    assert (row.source_name, row.method, row.backbone) == (None, "", "a-model")


def test_a_run_that_began_with_another_runs_checkpoint_keeps_the_first_backbone(database, record, tmp_path):
    source, runs_root = "hub/backbone", tmp_path / "runs"
    for run_id in ("sft", "rl", "run-1"):
        spec = load_preset("chains-exgrpo")
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})
        run = RunDirectory.create(runs_root, spec, run_id=run_id)
        events.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))
        source = str(runs_root / "next" / "model" / run_id / "step-000700")
    record(event([1]))
    (row,) = list_scores(database, source_run_id="run-1", scheme="paper")
    assert row.backbone == "hub/backbone"


def test_a_backbone_whose_run_is_gone_is_the_checkpoints_folder(database, record, tmp_path):
    spec = load_preset("chains-exgrpo")
    folder = "/runs/x/model/gone/step-000010"
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": folder})})
    run = RunDirectory.create(tmp_path / "runs", spec, run_id="run-1")
    events.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))
    record(event([1]))
    (row,) = list_scores(database, source_run_id="run-1", scheme="paper")
    assert row.backbone == folder


def test_archived_evaluation_is_left_out_unless_asked_for(database, record):
    run_id = record(event([1]))
    annotations.set_archived(database, run_id, True)
    assert list_scores(database) == []
    assert len(list_scores(database, run_id=run_id)) == 2
