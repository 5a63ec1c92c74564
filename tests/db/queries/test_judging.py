import pytest
from sqlalchemy import select

from db.connections.schema import reset
from db.ingest import events
from db.queries.judging import (
    count_issues,
    count_reasons,
    labelled_votes,
    list_judges,
    list_votes,
)
from db.queries.runs import list_runs
from db.queries.verdicts import judged_trajectories
from db.rows.judging import LabelledVoteRow
from db.tables import models
from jobs.judging.votes import VOTES_EVENT
from jobs.recording.event_reader import EventReader
from jobs.recording.event_writer import EventWriter
from jobs.runs.directory import RunDirectory
from tests.db.recorded_runs import ingest_run
from tests.db.table_contents import contents
from tests.jobs.judging.chain_runs import new_job, oracle_spec, record_chains, run_job, server_spec

KINDS = ["valid", "lucky", "wrong", "code"]


def ingest_job(database, job) -> int:
    events.register_run(database, job.read_run_info(), job.job_spec().model_dump(mode="json"))
    batch = EventReader(job).read(max_steps=1_000)
    return events.ingest_events(database, job.run_id, batch.events, batch.position)


def oracle_job(runs_root):
    job = new_job(runs_root, oracle_spec())
    run_job(job)
    return job


def job_of_votes(runs_root, votes, source="trained", run_id="voted") -> RunDirectory:
    """Record votes given as (item, trajectory, outcome, label), numbered by item."""
    judged = {"file": source} if source.endswith(".jsonl") else {"run_id": source}
    job = RunDirectory.create(runs_root, server_spec("http://127.0.0.1:1/v1", judged), run_id=run_id)
    writer = EventWriter(job.attempt_path(job.claim_attempt()), 1)
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
        writer.append(VOTES_EVENT, {"votes": [fields]})
    writer.close()
    return job


def test_a_judges_verdicts_are_counted_beside_the_run_that_they_are_on(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [KINDS, KINDS]))
    ingest_job(database, oracle_job(tmp_path))
    [judge] = list_judges(database, "trained")
    assert (judge.judge_run_id, judge.judge, judge.prompt) == ("judged", "chains oracle", "none")
    assert (judge.num_responses, judge.num_valid, judge.num_invalid, judge.num_unjudged) == (6, 2, 4, 0)
    assert list_judges(database, "another") == []
    assert list_judges(database) == [judge]
    assert count_issues(database, "judged") == {"calculation": 2, "omission": 2}
    assert count_reasons(database, "judged") == {}
    assert {row.run_id: row.kind for row in list_runs(database)} == {"trained": "train", "judged": "judge"}


@pytest.mark.parametrize("issues", [[[1]], [{"a": 1}], [None, "x"], {"a": 1}, "logical"])
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
    rows = list_votes(database, "trained", 0)
    assert [(row.vote, row.outcome, row.issues) for row in rows] == [
        (0, "valid", ()),
        (1, "valid", ()),
        (2, "invalid", ("logical",)),
    ]
    assert rows[0].answer == "so \N{REPLACEMENT CHARACTER} \\boxed{yes}"


def test_votes_on_labelled_items_are_given_back_with_their_labels(database, tmp_path):
    votes = [("a", None, "valid", True), ("b", None, "valid", False), ("b", None, "invalid", False)]
    ingest_job(database, job_of_votes(tmp_path, votes, source="sample.jsonl"))
    assert labelled_votes(database, "voted") == [
        LabelledVoteRow("a", True, "valid"),
        LabelledVoteRow("b", False, "valid"),
        LabelledVoteRow("b", False, "invalid"),
    ]


def test_votes_taken_in_twice_count_once_and_come_back_after_a_reset(database, tmp_path):
    run = record_chains(tmp_path, [KINDS])
    job = oracle_job(tmp_path)
    ingest_run(database, run)
    assert ingest_job(database, job) > 0
    assert ingest_job(database, job) == 0
    before = contents(database)
    assert len(before["judge_votes"]) == 3
    reset(database)
    ingest_run(database, run)
    ingest_job(database, job)
    assert contents(database) == before
