import math

from db.queries import buffer
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.queries.conftest import NUM_STEPS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.db.table_contents import buffer_changes
from tests.step_reports import make_report


def test_buckets_are_listed_by_step_and_thinned_out_on_request(recorded_run):
    database, recorded = recorded_run
    rows = buffer.bucket_grid(database, recorded)
    assert [(row.step, row.bucket) for row in rows] == [(s, b) for s in range(1, NUM_STEPS + 1) for b in (1, 2, 3)]
    assert (rows[3].num_questions, rows[3].probability, rows[3].num_drawn) == (3, 0.25, 1)
    assert {row.step for row in buffer.bucket_grid(database, recorded, max_steps=3)} == {4, 8, 10}


def test_the_buffer_at_a_step_is_what_its_changes_add_up_to(recorded_run):
    database, recorded = recorded_run
    expected: dict[int, int] = {}
    for step in range(1, NUM_STEPS + 1):
        for change in make_report(step).buffer_events:
            if change.kind is BufferEventKind.MOVED:
                expected[change.question_index] = change.bucket_to
            elif change.kind is BufferEventKind.RETIRED:
                expected.pop(change.question_index)
        assert buffer.buffer_at(database, recorded, step) == expected
    assert buffer.buffer_at(database, recorded, 0) == {}
    assert buffer.buffer_at(database, recorded, 10_000) == expected


def test_a_branch_starts_from_its_parents_buffer(database, tmp_path):
    def moves(question_index, bucket):
        def change(report):
            report.buffer_events = [BufferEvent(BufferEventKind.MOVED, question_index, None, None, bucket)]

        return change

    parent = new_run(tmp_path, run_id="parent")
    record_attempt(parent, range(1, 4), change=moves(1, 2))
    record_attempt(parent, range(4, 7), change=moves(2, 3))
    branch = new_run(tmp_path, run_id="branch", parent_run_id="parent", branched_from_step=3)
    record_attempt(branch, range(4, 6), change=moves(5, 6))
    clone = new_run(tmp_path, run_id="clone", parent_run_id="parent")
    for run in (parent, branch, clone):
        ingest_run(database, run)
    assert buffer.buffer_at(database, "branch", 9) == {1: 2, 5: 6}
    assert buffer.buffer_at(database, "branch", 2) == {1: 2}
    assert buffer.buffer_at(database, "parent", 9) == {1: 2, 2: 3}
    assert buffer.buffer_at(database, "clone", 9) == {}


def test_changes_are_recorded_in_the_order_in_which_they_happened(recorded_run):
    expected = [
        (step, change.kind.value, change.question_index, change.trajectory_id, change.bucket_from, change.bucket_to)
        for step in range(1, NUM_STEPS + 1)
        for change in make_report(step).buffer_events
    ]
    assert buffer_changes(*recorded_run) == expected


def test_candidates_show_their_scores_and_which_one_was_chosen(recorded_run):
    database, recorded = recorded_run
    rows = buffer.candidates(database, recorded, 5)
    selections = sorted(make_report(5).selections, key=lambda selection: selection.question_index)
    assert len(rows) == sum(selection.entropies.size for selection in selections) == 4
    for selection, item in zip(selections, [rows[:2], rows[2:]], strict=True):
        assert [row.trajectory_id for row in item] == selection.trajectory_ids.tolist()
        assert [row.entropy for row in item] == selection.entropies.tolist()
        assert [row.is_chosen for row in item] == [False, True]
        assert math.isnan(item[0].score)
        assert {row.bucket for row in item} == {2}
