from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from exgrpo.db.ingest.annotations import annotate, withdraw
from exgrpo.db.queries.cases import find_cases, list_case_sets, saved_cases, sets_of_run
from exgrpo.db.rows.chains_of_thought import CaseSetRow, SavedCase
from exgrpo.db.rows.runs import UnknownRunError
from tests.db.conftest import on_sqlite
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

pytestmark = on_sqlite

AT = datetime(2026, 11, 21, tzinfo=UTC)


def save_case(database, case_set, case, at=AT):
    annotate(database, "saved_cases", case.run_id, asdict(case) | {"case_set": case_set, "at": at})


def test_a_case_whose_verdicts_differ_comes_before_a_wider_gap_and_a_question_comes_once(database, tmp_path):
    steps = [
        Step({
            1: [Response(0.1, is_valid=True), Response(0.9, is_valid=True)],
            2: [Response(0.1, is_valid=True), Response(0.2, is_valid=False)],
            3: [Response(0.3)],
        }),
        Step({2: [Response(0.1, is_valid=True), Response(0.8, is_valid=True)]}),
    ]  # fmt: skip
    ingest_run(database, record_steps(tmp_path, steps))
    assert [(case.question_index, case.step) for case in find_cases(database, "trained", limit=5)] == [(2, 1), (1, 1)]
    assert len(find_cases(database, "trained", limit=1)) == 1
    assert [case.question_index for case in find_cases(database, "trained", limit=5, only_telling=True)] == [2]


def test_a_valid_and_an_invalid_response_of_different_steps_are_a_case(database, tmp_path):
    steps = [
        Step({1: [Response(0.3, is_valid=True), Response(0.1, is_valid=True)]}),
        Step({1: [Response(0.2, is_valid=False), Response(0.4, is_valid=False)]}),
    ]
    ingest_run(database, record_steps(tmp_path, steps))
    [case] = find_cases(database, "trained", limit=5)
    assert (case.low.step, case.high.step) == (1, 2)
    assert (case.low.entropy, case.high.entropy) == (pytest.approx(0.1), pytest.approx(0.4))
    assert case.steps == "steps 1 (low) and 2 (high)"
    assert find_cases(database, "trained", only_telling=True) == [case]


def test_an_invalid_response_that_is_surer_than_every_valid_one_is_no_case(database, tmp_path):
    steps = [Step({1: [Response(0.3, is_valid=True)]}), Step({1: [Response(0.2, is_valid=False)]})]
    ingest_run(database, record_steps(tmp_path, steps))
    assert find_cases(database, "trained") == []


def test_saved_cases_come_back_in_their_set_with_the_newest_judges_verdicts(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, [Step({1: [Response(0.1), Response(0.4)]})]))
    ingest_job(database, job_of_votes(tmp_path, [("1/1", 1, "invalid", None)]))
    [case] = find_cases(database, "trained")
    assert [find_cases(database, "trained", judge)[0].high.is_valid for judge in (None, "voted")] == [None, False]
    assert case.saved == SavedCase("trained", 1, 0, 1)
    for _ in range(2):
        save_case(database, "for the paper", case.saved)
    save_case(database, "odd ones", case.saved)
    assert list_case_sets(database) == [CaseSetRow("for the paper", 1, 1), CaseSetRow("odd ones", 1, 1)]
    assert sets_of_run(database, "trained") == {case.saved: ("for the paper", "odd ones")}
    [found] = saved_cases(database, "for the paper")
    assert (found.saved, found.high.is_valid, found.low.is_valid) == (case.saved, False, None)
    withdraw(database, "saved_cases", "trained", asdict(case.saved) | {"case_set": "odd ones"})
    assert [row.name for row in list_case_sets(database)] == ["for the paper"]


def test_saved_cases_come_in_the_order_of_saving_whatever_their_runs(database, tmp_path):
    for run_id in ("first", "second"):
        groups = Step({1: [Response(0.1), Response(0.4)], 2: [Response(0.1), Response(0.5)]})
        ingest_run(database, record_steps(tmp_path, [groups], run_id))
    order = [("first", 0, 1), ("second", 2, 3), ("first", 2, 3), ("second", 0, 1)]
    for minute, (run_id, low, high) in enumerate(order):
        save_case(database, "set", SavedCase(run_id, 1, low, high), AT.replace(minute=minute))
    save_case(database, "set", SavedCase("first", 1, 0, 77))  # whose second trajectory is not there
    found = [case.saved for case in saved_cases(database, "set")]
    assert [(saved.run_id, saved.low_trajectory_id, saved.high_trajectory_id) for saved in found] == order


def test_a_run_that_is_not_there_is_an_error(database):
    with pytest.raises(UnknownRunError):
        save_case(database, "set", SavedCase("nobody", 1, 0, 1))
