import itertools
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from exgrpo.db.ingest import events
from exgrpo.db.ingest.annotations import annotate, withdraw
from exgrpo.db.queries.code_analysis import code_lines
from exgrpo.db.queries.judging import (
    agreement,
    calibration_votes,
    count_issues,
    count_reasons,
    count_verdicts,
    get_verdicts,
    labelled_votes,
    list_judges,
    list_verdicts,
    list_votes,
)
from exgrpo.db.queries.verdicts import judged_trajectories
from exgrpo.db.rows.chains_of_thought import AgreementRow
from exgrpo.db.rows.judging import JudgedOrder, JudgedSortKey, VerdictFilter
from exgrpo.db.tables import models
from exgrpo.jobs.evaluation.judging.verdicts import VOTES_EVENT
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from tests.db.conftest import on_sqlite
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run
from tests.jobs.evaluation.judging.chain_runs import new_job, record_chains, server_spec

KINDS = ["valid", "lucky", "wrong", "code"]
AT = datetime(2026, 11, 21, tzinfo=UTC)
GROUP = [
    Response(is_valid=True), Response(is_valid=False), Response(is_valid=True), Response(), Response(is_correct=False),
]  # fmt: skip
VOTES = [
    ("1/0", 0, "valid", None), ("1/1", 1, "valid", None), ("1/2", 2, "valid", None), ("1/2", 2, "invalid", None),
    ("1/2", 2, "valid", None), ("1/3", 3, "unjudged", None),
]  # fmt: skip


def ingest_job(database, job):
    events.register_run(database, job.read_run_info(), job.job_spec().model_dump(mode="json"))
    batch = EventReader(job).read(max_steps=1_000)
    return events.ingest_events(database, job.run_id, batch.events, batch.position)


def job_of_votes(runs_root, votes, source="trained", run_id="voted"):
    """Record votes given as (item, trajectory, outcome, label), numbered by item."""
    judged = {"file": source} if source.endswith(".jsonl") else {"run_id": source}
    job = RunDirectory.create(runs_root, server_spec("http://127.0.0.1:1/v1", judged), run_id=run_id)
    writer = FileRecorder(job, job.claim_attempt(), RecordingSpec())
    counts = {}
    for item_id, trajectory_id, outcome, label in votes:
        number = counts.setdefault(item_id, 0)
        counts[item_id] += 1
        fields = {
            "item_id": item_id, "vote": number, "outcome": outcome, "reason": "no_box" if outcome == "unjudged" else "",
            "issues": ["logical"] if outcome == "invalid" else [], "source": source, "source_attempt": 1,
            "trajectory_id": trajectory_id, "label": label, "judge": "judge", "prompt": "cot-judge-1",
            "num_requests": 1, "num_tokens": 10, "answer": "so \x00 \\boxed{yes}",
        }  # fmt: skip
        writer.record(VOTES_EVENT, {"votes": [fields]})
    writer.close()
    return job


@pytest.mark.parametrize("issues", [[[1]], {"a": 1}, "logical"])
@on_sqlite
def test_a_vote_whose_issues_are_no_texts_is_refused_before_pages_of_the_judged_run_meet_it(database, tmp_path, issues):
    job = job_of_votes(tmp_path, [("1/0", 0, "invalid", None)])
    events.register_run(database, job.read_run_info(), job.job_spec().model_dump(mode="json"))
    [event] = EventReader(job).read().events
    event["votes"][0]["issues"] = issues
    with pytest.raises(ValueError, match="issues"):
        events.ingest_events(database, job.run_id, [event])


def test_the_majority_of_several_votes_is_the_verdict(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [KINDS]))
    votes = [
        ("1/0", 0, "valid", None), ("1/0", 0, "valid", None), ("1/0", 0, "invalid", None),
        ("1/1", 1, "valid", None), ("1/1", 1, "invalid", None),
        ("1/3", 3, "unjudged", None), ("1/3", 3, "invalid", None),
    ]  # fmt: skip
    ingest_job(database, job_of_votes(tmp_path, votes))
    with database.read() as connection:
        judged = judged_trajectories(connection, "trained", "voted")
        query = select(models.trajectories.c.trajectory_id, judged.verdict).select_from(judged.source)
        verdicts = connection.execute(query.where(*judged.conditions, judged.verdict.is_not(None))).all()
    assert sorted(verdicts) == [(0, True), (3, False)]
    [judge] = list_judges(database, "trained")
    assert (judge.num_valid, judge.num_invalid, judge.num_unjudged) == (1, 1, 1)
    assert (judge.num_votes, judge.num_responses, judge.num_tokens) == (7, 3, 70)
    assert count_reasons(database, "voted") == {"no_box": 1}
    assert count_issues(database, "voted") == {"logical": 3}
    assert list_judges(database) == [judge]
    assert list_judges(database, "another") == []
    rows = list_votes(database, "trained", 0)
    assert [(row.vote, row.outcome, row.issues) for row in rows] == [
        (0, "valid", ()), (1, "valid", ()), (2, "invalid", ("logical",)),
    ]  # fmt: skip
    assert rows[0].answer == "so \N{REPLACEMENT CHARACTER} \\boxed{yes}"


@pytest.fixture
def judged(database, tmp_path):
    """A run of four correct answers; the judge errs on 1, wavers on 2 and says nothing of 3."""
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


def test_an_order_is_over_all_verdicts_equal_ones_newest_first_and_unknown_ones_last(judged):
    names = {"question": "question_index", "entropy": "mean_entropy", "code": "has_code", "judge": "by_judge"}
    rows = list_verdicts(judged, "trained", "voted")
    for key, sign in itertools.product(JudgedSortKey, (1, -1)):
        values = {row.trajectory_id: getattr(row, names.get(key, key)) for row in rows}
        expected = sorted(values, key=lambda one, of=values, by=sign: (of[one] is None, by * (of[one] or 0)))
        found = list_verdicts(judged, "trained", "voted", limit=3, order=JudgedOrder(key, sign < 0))
        assert [row.trajectory_id for row in found] == expected[:3]


def test_a_verdict_of_another_judge_is_a_dispute(judged, tmp_path):
    ingest_job(judged, job_of_votes(tmp_path, [("1/0", 0, "invalid", None)], run_id="other"))
    assert ids(judged, VerdictFilter.DISPUTED) == [2, 1, 0]


def user_verdict(trajectory_id, is_valid):
    return (
        "verdict_overrides", "trained", {"attempt": 1, "trajectory_id": trajectory_id, "is_valid": is_valid, "at": AT},
    )  # fmt: skip


def test_a_users_verdict_stands_above_the_judges_and_can_be_taken_back(judged):
    for trajectory_id, is_valid in ((0, False), (3, True), (3, False)):
        annotate(judged, *user_verdict(trajectory_id, is_valid))
    row = get_verdicts(judged, "trained", 3, "voted")
    assert (row.by_judge, row.user) == (None, False)
    assert ids(judged, VerdictFilter.UNJUDGED) == []
    assert 0 in ids(judged, VerdictFilter.DISPUTED)
    line = {(line.group, line.has_code): line for line in code_lines(judged, "trained", "voted")}["all", False]
    assert (line.num_judged, line.cot_correctness, line.num_by_judge, line.num_valid_by_judge) == (4, 0.5, 3, 3)
    for trajectory_id in (0, 3):
        withdraw(judged, *user_verdict(trajectory_id, False))
    assert ids(judged, VerdictFilter.UNJUDGED) == [3]


def test_agreement_with_the_oracle_and_with_users_is_counted_where_both_have_a_verdict(judged):
    assert agreement(judged, "trained", "voted") == [AgreementRow("oracle", 2, 1, 0, 0)]
    annotate(judged, *user_verdict(0, False))
    assert agreement(judged, "trained", "voted")[1] == AgreementRow("users", 0, 1, 0, 0)
    assert agreement(judged, "trained") == [AgreementRow("users", 0, 1, 0, 0)]


def test_jobs_are_listed_with_what_they_spent_also_before_their_first_vote(judged, tmp_path):
    waiting = new_job(tmp_path, server_spec("http://127.0.0.1:1/v1", max_requests=40))
    events.register_run(judged, waiting.read_run_info(), waiting.job_spec().model_dump(mode="json"))
    newest, voted = list_judges(judged, "trained")
    assert (newest.judge_run_id, newest.status, newest.judge, newest.num_votes) == ("judged", "queued", "judge", 0)
    assert newest.max_requests == 40
    assert (voted.num_votes, voted.num_unjudged_votes, voted.num_responses) == (6, 1, 4)
    assert (voted.num_requests, voted.num_tokens, voted.max_requests) == (6, 60, None)
    assert list_judges(judged, "another") == []
    assert len(list_judges(judged)) == 2


def test_the_newest_calibration_of_the_same_judge_and_prompt_is_found(judged, tmp_path):
    assert calibration_votes(judged, "judge", "cot-judge-1") == []
    votes = [("a", None, "valid", True), ("b", None, "valid", False), ("b", None, "invalid", False)]
    ingest_job(judged, job_of_votes(tmp_path, votes, source="labelled.jsonl", run_id="calibrated"))
    rows = [(item, label, outcome) for item, _, outcome, label in votes]
    assert labelled_votes(judged, "calibrated") == calibration_votes(judged, "judge", "cot-judge-1") == rows
    assert calibration_votes(judged, "judge", "cot-judge-2") == []
