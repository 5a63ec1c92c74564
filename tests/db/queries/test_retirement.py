from dataclasses import replace

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
    # All 36 attempts but those at 4 (steps 5, 9) and 7 after its retirement (5, 9); 6 is in no bucket in step 5.
    assert lines == {None: 31, 2: 1, 1: 1}


def test_retired_questions_are_those_of_the_training_data(database, tmp_path):
    run = ingest_changed_run(database, tmp_path, tell, range(1, 10))
    recorded = RunDirectory.open(tmp_path, run.run_id)
    recorder = FileRecorder(recorded, recorded.claim_attempt(), RecordingSpec())
    recorder.questions([replace(question, answer="0") for question in make_questions()], "held_out")
    recorder.close()
    ingest_run(database, recorded)
    assert retired_questions(database, run.run_id) == [("Q4: 1+4=?", "5"), ("Q7: 1+7=?", "8")]
