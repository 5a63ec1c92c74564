from dataclasses import replace

import numpy as np
import pytest

from exgrpo.db.queries.retirement import retired_questions, retirement_lines
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_changed_run, ingest_run
from tests.step_reports import make_questions

pytestmark = on_sqlite

MOVED, RETIRED = BufferEventKind.MOVED, BufferEventKind.RETIRED
# Step s tries questions 4s to 4s + 3, modulo 16: fresh ones with 3 rollouts, the last two next to a replay with 2.
EVENTS = {
    1: [(MOVED, 4, None, 2), (MOVED, 6, None, 2), (RETIRED, 7, None, None)],
    5: [(RETIRED, 4, 2, None), (MOVED, 6, 2, 1)],
}


def tell(report):
    report.buffer_events = [
        BufferEvent(kind, index, None, was, now) for kind, index, was, now in EVENTS.get(report.step, [])
    ]
    for group in report.groups:
        for number, trajectory in enumerate(group.trajectories):
            trajectory.reward = float(group.question.index == 4 or number == 0)


def leave_by_a_limit(report):
    tell(report)
    if report.step == 4:
        left = [(6, 60, 2, None), (4, 40, 2, 2)]
        report.buffer_events = [BufferEvent(BufferEventKind.EVICTED, *values) for values in left]


def test_an_attempt_at_a_question_that_left_by_a_limit_is_one_in_no_bucket(database, tmp_path):
    run = ingest_changed_run(database, tmp_path, leave_by_a_limit, range(1, 10))
    lines = {line.bucket: line.num_attempts for line in retirement_lines(database, run.run_id, 4)}
    # As in the test below, but for question 6 in step 5: it is in no bucket then.
    assert lines == {None: 31, 2: 1, 1: 1}


def test_luck_is_counted_by_bucket_and_later_attempts_by_the_bucket_before_retirement(database, tmp_path):
    run = ingest_changed_run(database, tmp_path, tell, range(1, 10))
    none, one, two = retirement_lines(database, run.run_id, 4)
    # In no bucket: all 36 attempts but those at 4 (steps 5, 9), 6 (5, 9) and 7 after its retirement (5, 9).
    assert (none.bucket, none.num_attempts, none.num_retired) == (None, 30, 1)
    assert np.isnan(none.num_expected)
    # Question 7 is tried next to a replay in steps 5 and 9: one of 2 correct each time.
    assert (none.num_retests, none.retest_rate, none.retest_solved) == (2, 0.5, 0.0)
    # Bucket 2 of 4 in step 5: question 4 fresh, 6 next to a replay.
    assert (two.bucket, two.num_attempts, two.num_retired) == (2, 2, 1)
    assert two.num_expected == pytest.approx(0.5**3 + 0.5**2)
    assert (two.num_retests, two.retest_rate, two.retest_solved) == (1, 1.0, 1.0)
    assert (one.bucket, one.num_attempts, one.num_retired, one.num_retests) == (1, 1, 0, 0)
    assert one.num_expected == pytest.approx(0.25**2)
    assert np.isnan(one.retest_rate)
    recorded = RunDirectory.open(tmp_path, run.run_id)
    recorder = FileRecorder(recorded, recorded.claim_attempt(), RecordingSpec())
    recorder.questions([replace(question, answer="0") for question in make_questions()], "held_out")
    recorder.close()
    ingest_run(database, recorded)
    assert retired_questions(database, run.run_id) == [("Q4: 1+4=?", "5"), ("Q7: 1+7=?", "8")]
