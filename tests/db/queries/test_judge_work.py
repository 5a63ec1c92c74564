from datetime import UTC, datetime

import pytest

from db.ingest import events
from db.ingest.trajectory_annotations import clear_verdict, set_verdict
from db.queries.code_analysis import code_lines
from db.queries.judge_work import (
    agreement,
    calibration_votes,
    count_verdicts,
    get_verdicts,
    list_judge_jobs,
    list_verdicts,
)
from db.rows.analysis import AgreementRow
from db.rows.verdicts import VerdictFilter
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run
from tests.jobs.judging.chain_runs import new_job, server_spec

AT = datetime(2026, 11, 21, tzinfo=UTC)
GROUP = [
    Response(is_valid=True), Response(is_valid=False), Response(is_valid=True), Response(), Response(is_correct=False),
]  # fmt: skip
VOTES = [
    ("1/0", 0, "valid", None),
    ("1/1", 1, "valid", None),
    ("1/2", 2, "valid", None),
    ("1/2", 2, "invalid", None),
    ("1/2", 2, "valid", None),
    ("1/3", 3, "unjudged", None),
]


@pytest.fixture
def judged(database, tmp_path):
    """A run of four right answers; the judge errs on 1, wavers on 2 and says nothing of 3."""
    ingest_run(database, record_steps(tmp_path, [Step({0: GROUP})]))
    ingest_job(database, job_of_votes(tmp_path, VOTES))
    return database


def ids(database, which, judge="voted"):
    return [row.trajectory_id for row in list_verdicts(database, "trained", judge, which)]


def test_right_answers_are_listed_by_what_their_verdicts_are(judged):
    assert ids(judged, VerdictFilter.ALL) == [3, 2, 1, 0]
    assert ids(judged, VerdictFilter.JUDGED) == [2, 1, 0]
    assert ids(judged, VerdictFilter.UNJUDGED) == [3]
    assert ids(judged, VerdictFilter.DISPUTED) == [2, 1]
    assert ids(judged, VerdictFilter.UNJUDGED, judge=None) == [3]
    assert count_verdicts(judged, "trained", "voted") == {
        VerdictFilter.ALL: 4, VerdictFilter.JUDGED: 3, VerdictFilter.UNJUDGED: 1, VerdictFilter.DISPUTED: 2,
    }  # fmt: skip


def test_a_row_shows_every_verdict_beside_the_others(judged):
    row = get_verdicts(judged, "trained", 2, "voted")
    assert (row.by_judge, row.oracle, row.user) == (True, True, None)
    assert (row.num_valid, row.num_invalid, row.num_unjudged) == (2, 1, 0)
    silent = get_verdicts(judged, "trained", 3, "voted")
    assert (silent.by_judge, silent.num_unjudged, silent.reason) == (None, 1, "no_box")
    assert get_verdicts(judged, "trained", 99) is None


def test_pages_continue_below_the_last_row(judged):
    first = list_verdicts(judged, "trained", "voted", limit=3)
    rest = list_verdicts(judged, "trained", "voted", before=first[-1].trajectory_key, limit=3)
    assert [row.trajectory_id for row in first + rest] == [3, 2, 1, 0]


def test_a_verdict_of_another_judge_is_a_dispute(judged, tmp_path):
    ingest_job(judged, job_of_votes(tmp_path, [("1/0", 0, "invalid", None)], run_id="other"))
    assert ids(judged, VerdictFilter.DISPUTED) == [2, 1, 0]


def test_a_users_verdict_stands_above_the_judges_and_can_be_taken_back(judged):
    set_verdict(judged, "trained", 1, 0, False, AT)
    set_verdict(judged, "trained", 1, 3, True, AT)
    set_verdict(judged, "trained", 1, 3, False, AT)
    row = get_verdicts(judged, "trained", 3, "voted")
    assert (row.by_judge, row.user) == (None, False)
    assert ids(judged, VerdictFilter.UNJUDGED) == []
    assert 0 in ids(judged, VerdictFilter.DISPUTED)
    line = {(line.group, line.has_code): line for line in code_lines(judged, "trained", "voted")}["all", False]
    assert (line.num_judged, line.cot_correctness, line.num_by_judge, line.num_valid_by_judge) == (4, 0.5, 3, 3)
    clear_verdict(judged, "trained", 1, 0)
    clear_verdict(judged, "trained", 1, 3)
    assert ids(judged, VerdictFilter.UNJUDGED) == [3]


def test_agreement_with_the_oracle_and_with_users_is_counted_where_both_have_a_verdict(judged):
    assert agreement(judged, "trained", "voted") == [AgreementRow("oracle", 2, 1, 0, 0)]
    set_verdict(judged, "trained", 1, 0, False, AT)
    assert agreement(judged, "trained", "voted")[1] == AgreementRow("users", 0, 1, 0, 0)
    assert agreement(judged, "trained") == [AgreementRow("users", 0, 1, 0, 0)]


def test_jobs_are_listed_with_what_they_spent_also_before_their_first_vote(judged, tmp_path):
    waiting = new_job(tmp_path, server_spec("http://127.0.0.1:1/v1", max_requests=40))
    events.register_run(judged, waiting.read_run_info(), waiting.job_spec().model_dump(mode="json"))
    newest, voted = list_judge_jobs(judged, "trained")
    assert (newest.judge_run_id, newest.status, newest.judge, newest.num_votes) == ("judged", "queued", "judge", 0)
    assert newest.max_requests == 40
    assert (voted.num_votes, voted.num_unjudged_votes, voted.num_responses) == (6, 1, 4)
    assert (voted.num_requests, voted.num_tokens, voted.max_requests) == (6, 60, None)
    assert list_judge_jobs(judged, "another") == []
    assert len(list_judge_jobs(judged)) == 2


def test_the_newest_calibration_of_the_same_judge_and_prompt_is_found(judged, tmp_path):
    assert calibration_votes(judged, "judge", "cot-judge-1") == []
    votes = [("a", None, "valid", True), ("b", None, "valid", False)]
    ingest_job(judged, job_of_votes(tmp_path, votes, source="labelled.jsonl", run_id="calibrated"))
    assert [(row.label, row.outcome) for row in calibration_votes(judged, "judge", "cot-judge-1")] == [
        (True, "valid"),
        (False, "valid"),
    ]
    assert calibration_votes(judged, "judge", "cot-judge-2") == []
