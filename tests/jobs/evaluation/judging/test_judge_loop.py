import json
import threading
import time
from contextlib import contextmanager

import pytest

from exgrpo.jobs.actions.progress import count_pieces
from exgrpo.jobs.evaluation.judging.items import counted_trajectories, open_items
from exgrpo.jobs.evaluation.judging.verdicts import ASKED_EVENT, PROMPT_FILE, read_recorded_votes
from exgrpo.jobs.runs.control import Phase, TrainingError
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.recording import file_recorder
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.evaluation.judging.chain_runs import (
    WRITINGS,
    Switch,
    new_job,
    oracle_spec,
    record_chains,
    run_job,
    server_spec,
    votes_of,
)
from tests.jobs.evaluation.judging.judge_server import Reply, completion, judge_as_oracle, serving

pytestmark = pytest.mark.slow

KINDS = ["valid", "lucky", "wrong", "code"]


@contextmanager
def judged_by(tmp_path, behaviour=judge_as_oracle, num_steps=1, **changes):
    record_chains(tmp_path, [KINDS] * num_steps)
    with serving(behaviour) as server:
        yield new_job(tmp_path, server_spec(server.address, **changes)), server


def test_the_oracle_judges_every_correct_response_and_names_the_first_fault(tmp_path):
    record_chains(tmp_path, [KINDS, ["wrong", "wrong", "valid", "lucky"]])
    job = new_job(tmp_path, oracle_spec())
    control = Switch()
    assert run_job(job, control) is RunStatus.FINISHED
    assert control.phases == [Phase.ANSWERS]
    assert [(vote.trajectory_id, vote.outcome, vote.issues) for vote in votes_of(job)] == [
        (0, "valid", ()), (1, "invalid", ("calculation",)), (3, "invalid", ("omission",)), (6, "valid", ()),
        (7, "invalid", ("calculation",)),
    ]  # fmt: skip
    assert {(vote.source, vote.judge) for vote in votes_of(job)} == {("trained", "chains oracle")}


def test_a_server_that_judges_well_agrees_with_the_oracle(tmp_path):
    all_at_once = threading.Barrier(3)

    def judge_three_at_once(body):
        all_at_once.wait(timeout=30)
        return judge_as_oracle(body)

    with judged_by(tmp_path, judge_three_at_once, num_steps=3, num_parallel=3, timeout_seconds=60.0) as (job, server):
        assert run_job(job) is RunStatus.FINISHED
        assert len(server.bodies) == 9
    by_id = {vote.trajectory_id: vote.outcome for vote in votes_of(job)}
    assert by_id == {4 * step + item: outcome for step in range(3) for item, outcome in
                     ((0, "valid"), (1, "invalid"), (3, "invalid"))}  # fmt: skip
    assert {(vote.judge, vote.prompt) for vote in votes_of(job)} == {("judge", PROMPT_FILE.stem)}


def test_wrong_answers_are_judged_on_request_and_steps_and_number_can_be_limited(tmp_path):
    record_chains(tmp_path, [KINDS] * 4)
    wide = open_items(tmp_path, oracle_spec(only_correct=False).judged)
    assert [item.solution for item in wide][:4] == [WRITINGS[kind] for kind in KINDS]
    assert len(open_items(tmp_path, oracle_spec(first_step=2, last_step=3).judged)) == 6
    drawn = [item.item_id for item in open_items(tmp_path, oracle_spec(limit=5).judged)]
    assert len(drawn) == 5
    assert drawn == [item.item_id for item in open_items(tmp_path, oracle_spec(limit=5).judged)]
    assert drawn != [item.item_id for item in open_items(tmp_path, oracle_spec(limit=5, seed=1).judged)]


def test_steps_that_a_later_attempt_did_again_are_judged_once_also_in_the_middle_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(file_recorder, "WRITE_EVERY_SECONDS", 3600.0)
    record_chains(tmp_path, [KINDS] * 5)
    run = record_chains(tmp_path, [["valid"], ["valid"]], first_step=3)
    attempts = {step: place.attempt for step, place, _ in counted_trajectories(run)}
    assert attempts == {1: 1, 2: 1, 3: 2, 4: 2}
    items = [item.item_id for item in open_items(tmp_path, oracle_spec().judged)]
    assert items == ["1/0", "1/1", "1/3", "1/4", "1/5", "1/7", "2/8", "2/9"]


def test_a_stopped_judge_goes_on_without_asking_again(tmp_path):
    def slowly(body):
        time.sleep(0.15)
        return judge_as_oracle(body)

    with judged_by(tmp_path, slowly, num_steps=4) as (job, server):
        control = Switch(stop_after=2)
        assert run_job(job, control) is RunStatus.STOPPED
        assert control.phases == [Phase.ANSWERS]
        assert 2 <= len(votes_of(job)) < 12
        server.behaviour = judge_as_oracle
        assert run_job(job) is RunStatus.FINISHED
        assert len(server.bodies) == 12
    assert len({vote.key for vote in votes_of(job)}) == len(votes_of(job)) == 12


def test_the_spend_cap_ends_the_judging_and_counts_what_earlier_attempts_spent(tmp_path):
    with judged_by(tmp_path, num_steps=4, max_requests=5) as (job, server):
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"5 requests .* 5 votes of 12 "):
                run_job(job)
        assert len(server.bodies) == 5
    assert len(votes_of(job)) == 5


def test_a_server_that_fails_throughout_ends_the_judging_and_is_asked_again_on_resume(tmp_path):
    with judged_by(tmp_path, lambda _: Reply("", 503), num_steps=10, num_tries=1) as (job, server):
        with pytest.raises(TrainingError, match=r"20 times .* http_503"):
            run_job(job)
        assert votes_of(job) == []
        server.behaviour = judge_as_oracle
        assert run_job(job) is RunStatus.FINISHED
    assert len(votes_of(job)) == 30


def test_a_single_failure_among_answers_is_unjudged(tmp_path):
    replies = [completion("It is fine."), Reply("", 500)]
    with judged_by(tmp_path, num_tries=1) as (job, server):
        server.behaviour = lambda body: replies.pop() if replies else judge_as_oracle(body)
        run_job(job)
    assert sorted((vote.trajectory_id, vote.outcome, vote.reason) for vote in votes_of(job)) == [
        (0, "unjudged", "http_500"),
        (1, "unjudged", "no_box"),
        (3, "invalid", ""),
    ]


def test_a_request_that_a_kill_left_without_an_answer_counts_as_paid(tmp_path):
    with judged_by(tmp_path) as (job, _):
        run_job(job)
    num_tokens = sum(vote.num_tokens for vote in votes_of(job))
    recorder = FileRecorder(job, job.claim_attempt(), RecordingSpec())
    recorder.record(ASKED_EVENT, {"item_id": "1/9", "vote": 0, "num_tokens": 500})
    recorder.close()
    recorded = read_recorded_votes(job)
    assert (len(recorded.votes), recorded.num_requests, recorded.num_tokens) == (3, 4, num_tokens + 500)


def test_a_file_with_labels_is_read_and_a_wrong_line_is_named(tmp_path):
    path = tmp_path / "labelled.jsonl"
    rows = [
        {"id": "a", "problem": "p", "steps": ["s", "t"], "label": -1, "final_answer_correct": True},
        {"id": "b", "problem": "p", "steps": ["s"], "label": 0, "final_answer_correct": True},
        {"id": "c", "problem": "p", "steps": ["s"], "label": 0, "final_answer_correct": False},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    spec = server_spec("http://127.0.0.1:1/v1", judged={"file": str(path)})
    items = list(open_items(tmp_path, spec.judged))
    assert [(item.item_id, item.solution, item.label) for item in items] == [("a", "s\n\nt", True), ("b", "s", False)]
    path.write_text("\n".join(map(json.dumps, [rows[0], rows[0]])), encoding="utf-8")
    with pytest.raises(TrainingError, match="line 2: id 'a'"):
        open_items(tmp_path, spec.judged)
    path.write_text('{"id": 1}', encoding="utf-8")
    with pytest.raises(TrainingError, match="line 1: "):
        open_items(tmp_path, spec.judged)


def test_ids_and_texts_of_any_characters_are_judged(tmp_path):
    path = tmp_path / "labelled.jsonl"
    row = {"id": "\u00fc\r\nX-Evil: 1 \ud800", "problem": "\ud800 = ?", "steps": ["\x00 \udfff \u2028"], "label": -1}
    other = json.dumps({"id": 2, "problem": "\u2028", "steps": [], "label": 0}, ensure_ascii=False)
    path.write_text(f"{json.dumps(row)}\n\n{other}", encoding="utf-8")
    with serving(lambda _: completion("\ud83d \x00 \\boxed{yes}")) as server:
        job = new_job(tmp_path, server_spec(server.address, judged={"file": str(path)}))
        assert run_job(job) is RunStatus.FINISHED
        assert "X-Evil" not in server.headers[0]
    assert [vote.outcome for vote in votes_of(job)] == ["valid", "valid"]


def test_several_votes_are_asked_for_apart_and_their_number_is_known(tmp_path):
    with judged_by(tmp_path, num_votes=3) as (job, server):
        assert count_pieces(job) is None
        run_job(job)
        assert len(server.bodies) == 9
    assert count_pieces(job) == 9
    assert sorted((vote.trajectory_id, vote.vote) for vote in votes_of(job)) == [
        (item, vote) for item in (0, 1, 3) for vote in range(3)
    ]


def test_nothing_to_judge_is_said(tmp_path):
    record_chains(tmp_path, [["wrong"]])
    with pytest.raises(TrainingError, match=r"^trained: "):
        run_job(new_job(tmp_path, oracle_spec()))
