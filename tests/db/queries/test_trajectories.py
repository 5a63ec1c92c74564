import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from db.ingest.annotations import remove_mark, set_mark
from db.queries import lineage, trajectories
from db.queries.trajectories import list_marks, marked_trajectories, marks_of
from db.rows.trajectories import MarkCount, MarkedTrajectory
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_changed_run, ingest_run
from tests.step_reports import make_report

pytestmark = pytest.mark.slow

AT = datetime(2026, 11, 21, tzinfo=UTC)
ODD = MarkedTrajectory("trained", 1, 1, "odd", "skips a step")


def fresh_of(step):
    return [item for group in make_report(step).groups for item in group.trajectories]


def test_a_trajectory_comes_back_whole(recorded_run):
    database, recorded = recorded_run
    made = fresh_of(3)[2]
    row = trajectories.get_trajectory(database, recorded, made.trajectory_id)
    assert (row.text, row.reward, row.verdict, row.step) == (made.text, made.reward, made.verdict, 3)
    assert (row.question_id, row.is_valid, row.has_code) == (f"id{made.question_index:04d}", made.is_valid, False)
    assert row.mean_entropy == pytest.approx(float(made.entropies.mean()), rel=1e-6)
    file = trajectories.find_trajectory_file(database, recorded, made.trajectory_id)
    assert file == "attempts/0001/trajectories/step-00000003.parquet"
    assert trajectories.get_trajectory(database, recorded, 10_000) is None


def test_replays_of_a_trajectory_are_counted_and_listed(database, tmp_path):
    def replay_the_first(report):
        for group in report.groups:
            if group.has_replay:
                stored = group.replays[0].experience
                changed = type(stored)(0, 0, stored.question_index, 1, 1.0, stored.token_ids, stored.behavior_log_probs)
                same = {"experience": changed, "old_log_probs": stored.behavior_log_probs}
                group.replays = (dataclasses.replace(group.replays[0], **same),)
                return

    row = ingest_changed_run(database, tmp_path, replay_the_first, range(1, 4))
    first = trajectories.get_trajectory(database, row.run_id, 0)
    assert first.num_replays == 2
    events = lineage.lineage(database, row.run_id, 0, first.question_index, first.step)
    replays = [(event.step, event.mean_ratio, event.max_ratio) for event in events if event.kind == "replayed"]
    assert replays == [(2, 1.0, 1.0), (3, 1.0, 1.0)]


@pytest.fixture
def marked(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, [Step({2: [Response(0.2), Response(0.1), Response(0.5)]})]))
    for mark in (ODD, ODD, MarkedTrajectory("trained", 1, 2, "odd"), MarkedTrajectory("trained", 1, 1, "long")):
        set_mark(database, mark, AT + timedelta(seconds=mark.trajectory_id))
    return database


def test_marks_of_a_trajectory_and_their_numbers(marked):
    assert marks_of(marked, "trained", 1, 1) == [MarkedTrajectory("trained", 1, 1, "long"), ODD]
    assert marks_of(marked, "trained", 1, 0) == marks_of(marked, "trained", 2, 1) == []
    assert list_marks(marked) == [MarkCount("long", 1, 1), MarkCount("odd", 2, 1)]


def test_what_carries_a_mark_comes_marked_last_first_with_question_and_text(marked):
    last, first = marked_trajectories(marked, "odd")
    assert (last.marked.trajectory_id, first.marked) == (2, ODD)
    assert (first.step, first.question_index, first.prompt_text, first.answer) == (1, 2, "prompt 2", "9")
    assert first.mean_entropy == pytest.approx(0.1)
    assert first.text
    assert [row.marked.trajectory_id for row in marked_trajectories(marked, "odd", limit=1)] == [2]
    assert marked_trajectories(marked, "unknown") == []


def test_the_same_mark_again_changes_its_comment_and_a_mark_can_be_taken_off(marked):
    set_mark(marked, MarkedTrajectory("trained", 1, 1, "odd", "no, it does not"), AT)
    assert [item.comment for item in marks_of(marked, "trained", 1, 1)] == ["", "no, it does not"]
    for _ in range(2):
        remove_mark(marked, ODD)
    assert [entry.mark for entry in marks_of(marked, "trained", 1, 1)] == ["long"]
