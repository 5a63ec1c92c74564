import math

import pytest

from db import ingest
from db.paired_bootstrap import paired_bootstrap
from db.queries.benchmarks import compare_evaluations, differing_parts, list_disputed, list_scores
from db.queries.run_lookup import UnknownRunError
from jobs.eval_specs import BenchmarkChoice, EvalModelSpec, EvalSpec
from jobs.run_directory import RunDirectory
from jobs.specs import RecordingSpec
from jobs.spool_reader import SpoolReader
from jobs.spool_recorder import SpoolRecorder

PARTS = {"data_hash": "aa", "template": "paper", "samples_per_question": 4}


def event(num_correct, **changes):
    num_questions = len(num_correct)
    disputed = {
        "question_id": "q0",
        "sample": 1,
        "gold": "42",
        "answer": "6*7\x00",
        "paper": "correct",
        "training": "correct",
        "corrected": "wrong",
    }
    fields = {
        "benchmark": "aime24",
        "title": "AIME 2024",
        "comparability": PARTS,
        "comparability_key": "k1",
        "samples_per_question": 4,
        "question_ids": [f"q{number}" for number in range(num_questions)],
        "num_correct": {"paper": num_correct, "training": num_correct, "corrected": [0] * num_questions},
        "outcomes": {"paper": {"correct": 3}, "training": {"timeout": 1}, "corrected": {"wrong": 4}},
        "mean_tokens": 10.0,
        "truncated_share": 0.25,
        "disputed": [disputed],
        "notices": [],
        "seconds": 1.5,
        "model": "a-model",
        "source_run_id": "run-1",
        "source_step": 50,
    }
    return fields | changes


@pytest.fixture
def record(database, tmp_path):
    """Records evaluations, each of some benchmarks' events, takes them in and gives their ids."""

    def make(*events, times=1):
        spec = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="aime24"),))
        run = RunDirectory.create(tmp_path / "runs", spec)
        for _ in range(times):
            recorder = SpoolRecorder(run, run.claim_attempt(), RecordingSpec())
            for own in events:
                recorder.record("benchmark", own)
            recorder.close()
        ingest.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))
        batch = SpoolReader(run).read()
        ingest.ingest_events(database, run.run_id, batch.events, batch.position)
        return run.run_id

    return make


def test_score_is_the_mean_over_questions_with_an_error_clustered_over_them(database, record):
    run_id = record(event([4, 0, 2]))
    rows = {row.scheme: row for row in list_scores(database, run_id=run_id)}
    assert rows["paper"].score == pytest.approx(0.5)
    # Rates 1, 0, 0.5: standard deviation 0.5, over the root of three questions.
    assert rows["paper"].standard_error == pytest.approx(0.5 / math.sqrt(3))
    assert rows["corrected"].score == 0.0
    assert (rows["paper"].metric, rows["paper"].num_questions, rows["paper"].source_step) == ("Avg@4", 3, 50)
    assert rows["training"].outcomes == {"timeout": 1}


def test_benchmark_recorded_by_two_attempts_counts_once(database, record):
    run_id = record(event([4, 0, 2]), times=2)
    assert len(list_scores(database, run_id=run_id)) == 3
    assert len(list_disputed(database, run_id)) == 1


def test_scores_are_found_by_the_run_that_they_are_of(database, record):
    record(event([1]))
    other = record(event([1], source_run_id="run-2"))
    assert [row.run_id for row in list_scores(database, source_run_id="run-2", scheme="paper")] == [other]
    assert len(list_scores(database, scheme="paper")) == 2


def test_disputed_answers_are_plain_rows(database, record):
    (row,) = list_disputed(database, record(event([1])), "aime24")
    assert (row.question_id, row.sample, row.gold, row.answer) == ("q0", 1, "42", "6*7\N{REPLACEMENT CHARACTER}")
    assert (row.paper, row.corrected) == ("correct", "wrong")


def test_two_evaluations_are_compared_on_their_common_questions(database, record):
    first = record(event([0, 0, 4, 4]))
    second = record(event([4, 2, 4], comparability=PARTS | {"template": "none"}))
    (row,) = compare_evaluations(database, first, second, "paper")
    assert (row.num_questions, row.first, row.second) == (3, pytest.approx(1 / 3), pytest.approx(5 / 6))
    assert row.difference == pytest.approx(0.5)
    assert row.low <= 0.5 <= row.high
    assert row.differing == ("template",)


def test_evaluation_without_scores_is_named(database, record):
    with pytest.raises(UnknownRunError, match="nothing-here: has no scores by the scheme paper"):
        compare_evaluations(database, record(event([1])), "nothing-here", "paper")


def test_interval_covers_no_difference_where_there_is_none_and_not_where_there_is():
    same = paired_bootstrap([0.0, 1.0] * 50, [1.0, 0.0] * 50)
    assert same.low < 0.0 < same.high
    assert same.p_value > 0.5
    better = paired_bootstrap([0.0] * 50, [1.0] * 40 + [0.0] * 10)
    assert better.low > 0.6
    assert better.p_value < 0.001


def test_pairing_matters_more_than_the_spread_between_questions():
    hard_and_easy = [0.0, 1.0] * 50
    found = paired_bootstrap(hard_and_easy, [rate * 0.9 for rate in hard_and_easy])
    assert found.high < 0.0


def test_different_numbers_of_questions_are_refused():
    with pytest.raises(ValueError, match="expected the same ones twice, got 1 and 2"):
        paired_bootstrap([1.0], [1.0, 0.0])


def test_parts_that_differ_are_named():
    assert differing_parts({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ("b", "c")
