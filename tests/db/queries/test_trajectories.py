from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from exgrpo.db.ingest.annotations import annotate, withdraw
from exgrpo.db.queries.trajectories import list_marks, marked_trajectories, marks_of
from exgrpo.db.rows.trajectories import MarkCount, MarkedTrajectory
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

pytestmark = pytest.mark.slow

AT = datetime(2026, 11, 21, tzinfo=UTC)
ODD = MarkedTrajectory("trained", 1, 1, "odd", "skips a step")


@pytest.fixture
def marked(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, [Step({2: [Response(0.2), Response(0.1), Response(0.5)]})]))
    for mark in (ODD, ODD, MarkedTrajectory("trained", 1, 2, "odd"), MarkedTrajectory("trained", 1, 1, "long")):
        at = AT + timedelta(seconds=mark.trajectory_id)
        annotate(database, "trajectory_marks", mark.run_id, asdict(mark) | {"at": at})
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
    annotate(marked, "trajectory_marks", "trained", asdict(ODD) | {"comment": "no, it does not", "at": AT})
    assert [item.comment for item in marks_of(marked, "trained", 1, 1)] == ["", "no, it does not"]
    for _ in range(2):
        withdraw(marked, "trajectory_marks", "trained", asdict(ODD))
    assert [entry.mark for entry in marks_of(marked, "trained", 1, 1)] == ["long"]
