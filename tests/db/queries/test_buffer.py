from collections import Counter

import pytest

from exgrpo.db.queries import buffer, recorded_steps
from exgrpo.jobs.actions.replay.recorded_step import BucketsThen
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.conftest import KINDS
from tests.db.queries.conftest import NUM_STEPS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_questions, make_report

K = BufferEventKind
STORY = {
    1: [(K.MOVED, 1, None, None, 2), (K.INSERTED, 1, 10, 2, 2), (K.INSERTED, 1, 11, 2, 2)],
    2: [(K.MOVED, 2, None, None, 3), (K.INSERTED, 2, 20, 3, 3), (K.DUPLICATE, 1, 10, 2, 2)],
    3: [(K.REPLAYED, 1, 10, 2, 2), (K.MOVED, 1, None, 2, 5), (K.INSERTED, 1, 12, 5, 5)],
    4: [(K.RETIRED, 2, None, 3, None), (K.RETIRED, 9, None, None, None)],
    5: [(K.MOVED, 3, None, None, 1), (K.INSERTED, 3, 30, 1, 1)],
}


def test_buckets_are_listed_by_step_and_thinned_out_on_request(recorded_run):
    database, recorded = recorded_run
    rows = buffer.bucket_grid(database, recorded)
    assert [(row.step, row.bucket) for row in rows] == [(s, b) for s in range(1, NUM_STEPS + 1) for b in (1, 2, 3)]
    assert (rows[3].num_questions, rows[3].probability, rows[3].num_drawn) == (3, 0.25, 1)
    assert {row.step for row in buffer.bucket_grid(database, recorded, max_steps=3)} == {4, 8, 10}
    assert buffer.bucket_grid(database, recorded, max_steps=None) == rows


def tell(report):
    report.buffer_events = [BufferEvent(*event) for event in STORY.get(report.step, [])]


def retire_the_first(report):
    report.buffer_events = [BufferEvent(K.RETIRED, 1, None, 5, None)] if report.step == 4 else []


@pytest.fixture(scope="module", params=KINDS)
def stored_run(request, new_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    database, run = new_database(request.param, folder), new_run(folder)
    record_attempt(run, range(1, 7), end=RunStatus.FINISHED, change=tell)
    ingest_run(database, run)
    child = new_run(folder, run_id="child", parent_run_id=run.run_id, branched_from_step=3)
    record_attempt(child, range(4, 6), change=retire_the_first)
    ingest_run(database, child)
    yield database, run.run_id
    database.close()


def born(database, run_id, step):
    return Counter(row.rollout_step for row in buffer.stored_trajectories(database, run_id, step))


def test_branch_holds_what_its_parent_stored_until_it_retires_it(stored_run):
    database, _ = stored_run
    assert buffer.state_at(database, "child", 4).retired == {1}
    assert born(database, "child", 3) == {1: 2, 2: 1, 3: 1}
    assert born(database, "child", 4) == {2: 1}
    assert buffer.state_at(database, "child", 2).buckets == {1: 2, 2: 3}
    assert buffer.state_at(database, "child", 9).buckets == {2: 3}


def leave(report):
    story = STORY | {
        4: [(K.EVICTED, 1, 10, 5, 5)],
        5: [(K.EVICTED, 2, 20, 3, None), (K.EVICTED, 1, 11, 5, 5)],
        6: [(K.MOVED, 2, None, None, 4), (K.INSERTED, 2, 40, 4, 4)],
    }
    report.buffer_events = [BufferEvent(*event) for event in story[report.step]]


def test_what_was_evicted_is_not_held_and_its_question_is_outside_but_not_retired(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 7), end=RunStatus.FINISHED, change=leave)
    ingest_run(database, run)
    assert [born(database, run.run_id, step) for step in (3, 4, 5, 6)] == [
        {1: 2, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}, {3: 1}, {3: 1, 6: 1},
    ]  # fmt: skip
    states = [buffer.state_at(database, run.run_id, step) for step in (4, 5, 6)]
    assert [state.buckets for state in states] == [{1: 5, 2: 3}, {1: 5}, {1: 5, 2: 4}]
    assert not any(state.retired for state in states)
    then = BucketsThen(recorded_steps.moves_until(database, run.run_id, 5), 8, 5)
    assert (then.bucket_of(1), then.bucket_of(2), then.retired) == (5, None, set())


def test_buffered_questions_tell_text_stored_and_replays(stored_run):
    database, run_id = stored_run
    rows = {row.question_index: row for row in buffer.buffered_questions(database, run_id, 6, (1, 2, 3))}
    assert {index: row.num_stored for index, row in rows.items()} == {1: 3, 2: 0, 3: 1}
    assert rows[1].prompt_text == "Q1: 1+1=?"


def test_candidates_come_with_their_newest_scores_before_the_step(database, tmp_path):
    run = new_run(tmp_path)
    first = make_report(1).groups[0].trajectories[0]
    index = first.question_index

    def change(report):
        report.buffer_events = []
        if report.step == 1:
            report.buffer_events = [BufferEvent(K.INSERTED, index, number, 2, 2) for number in (0, 1)]
        if report.step == 3:
            object.__setattr__(report.selections[0], "question_index", index)
            report.selections[0].trajectory_ids[:] = [0, 99]

    record_attempt(run, range(1, 5), change=change)
    ingest_run(database, run)
    before = buffer.stored_candidates(database, run.run_id, 3, (index,))
    assert [(row.trajectory_id, row.rollout_step, row.scored_step) for row in before] == [(0, 1, 1), (1, 1, 1)]
    assert before[0].entropy == pytest.approx(float(first.entropies.mean()))
    after = buffer.stored_candidates(database, run.run_id, 4, (index,))
    assert [(row.trajectory_id, row.scored_step) for row in after] == [(0, 3), (1, 1)]
    assert after[0].entropy == pytest.approx(float(make_report(3).selections[0].entropies[0]))


def test_questions_that_another_run_does_not_have_are_counted(stored_run, tmp_path):
    database, run_id = stored_run
    assert buffer.count_other_questions(database, run_id, "child") == 0
    other = new_run(tmp_path, run_id="other")
    recorder = FileRecorder(other, other.claim_attempt(), RecordingSpec())
    recorder.questions(make_questions()[:3], "training")
    recorder.close()
    ingest_run(database, other)
    num_questions = len(make_questions())
    assert buffer.count_other_questions(database, run_id, "nobody") == num_questions
    assert buffer.count_other_questions(database, run_id, "other") == num_questions - 3
