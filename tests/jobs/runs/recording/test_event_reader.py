"""What is read back of recorded events: in parts, torn, damaged, of several segments."""

import shutil

import pytest

from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.run_files.event_codec import EventWriter, list_segments, segment_path
from exgrpo_core.run_files.file_recorder import FileRecorder
from exgrpo_core.step_report import StepReport
from jobs.runs.recording.event_reader import EventReader
from jobs.specs.train import RecordingSpec
from tests.exgrpo_core.run_files.test_file_recorder import read_all, record, record_fast, step_file
from tests.step_reports import make_questions, make_report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("max_steps", [1, 2, 100])
def test_reading_in_parts_gives_each_event_once(run, max_steps, monkeypatch):
    record(run, range(1, 6))
    record_fast(run, [make_report(step) for step in range(3, 10)], monkeypatch)
    events = read_all(run, max_steps)
    places = [(event["attempt"], event["seq"]) for event in events]
    assert places == [(1, seq) for seq in range(1, 8)] + [(2, seq) for seq in range(1, 8)]
    assert all(event["trajectories"] for event in events if event["kind"] == "step")


def test_reading_goes_on_where_it_ended(run):
    recorder = record(run, range(1, 3))
    first = EventReader(run).read()
    again = EventReader(run).read(first.position)
    recorder.step(make_report(3))
    recorder.close()
    more = EventReader(run).read(first.position)
    assert (again.events, again.position) == ([], first.position)
    assert [event["step"] for event in more.events] == [3]


def test_questions_are_recorded_once_a_run(run):
    recorder = record(run, range(1, 2))
    recorder.questions(make_questions(), "training")
    recorder.questions(make_questions(2), "held_out")
    recorder.close()
    record(run, range(2, 3))
    events = [event for event in read_all(run, 100) if event["kind"] == "questions"]
    found = [(event["attempt"], event["question_set"], len(event["questions"])) for event in events]
    assert found == [(1, "training", 16), (1, "held_out", 2), (2, "training", 16)]
    assert {event["file"] for event in events[::2]} == {"attempts/0001/questions-training.parquet"}
    assert not list(run.attempt_path(2).glob("questions-*"))


def test_a_torn_last_line_waits_until_it_is_whole(run):
    record(run, range(1, 4))
    path = segment_path(run.attempt_path(1), 1)
    content = path.read_bytes()
    whole_lines = content.splitlines(keepends=True)
    last = len(whole_lines[-1])
    for cut in (len(content) - last, len(content) - last // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        batch = EventReader(run).read()
        assert [event["seq"] for event in batch.events] == [1, 2, 3, 4]
        assert batch.faults == []
    path.write_bytes(content)
    assert [event["seq"] for event in EventReader(run).read(batch.position).events] == [5]


def test_a_torn_line_of_an_older_attempt_is_left_behind(run):
    record(run, range(1, 4))
    path = segment_path(run.attempt_path(1), 1)
    path.write_bytes(path.read_bytes()[:-10])
    record(run, range(3, 5))
    steps = [(event["attempt"], event["step"]) for event in read_all(run, 100) if event["kind"] == "step"]
    assert steps == [(1, 1), (1, 2), (2, 3), (2, 4)]


def test_a_damaged_line_is_passed_over_and_named(run):
    record(run, range(1, 4))
    path = segment_path(run.attempt_path(1), 1)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"step":2', b'"step":9')
    path.write_bytes(b"".join(lines))
    batch = EventReader(run).read()
    assert [event["seq"] for event in batch.events] == [1, 2, 3, 5]
    name = str(path.relative_to(run.path))
    assert batch.faults == [Fault(FaultKind.DAMAGED_LINE, name, (sum(map(len, lines[:3])),))]


def test_a_missing_trajectory_file_costs_its_rows_only(run):
    record(run, range(1, 3))
    step_file(run, 1).unlink()
    step_file(run, 2).write_bytes(b"PAR1 no")
    batch = EventReader(run).read()
    steps = [event for event in batch.events if event["kind"] == "step"]
    assert [(event["trajectories"], event["replays"]) for event in steps] == [([], []), ([], [])]
    assert [fault.kind for fault in batch.faults] == [FaultKind.MISSING, FaultKind.CHANGED]
    assert steps[0]["metrics"]["seconds/step"] == 0.25


def test_a_file_outside_the_run_is_not_read(run, tmp_path):
    record(run, range(1, 2))
    shutil.copy(step_file(run, 1), tmp_path / "other.parquet")
    writer = EventWriter(run.attempt_path(run.claim_attempt()), 2)
    writer.append("questions", {"question_set": "training", "file": "../../other.parquet"})
    writer.close()
    batch = EventReader(run).read()
    assert batch.events[-1]["questions"] == []
    assert batch.faults == [Fault(FaultKind.OUTSIDE, "../../other.parquet")]


def test_segments_are_closed_at_their_size_and_read_in_order(run):
    writer = EventWriter(run.attempt_path(run.claim_attempt()), 1, max_segment_bytes=300)
    for number in range(20):
        writer.append("status", {"status": "running", "reason": f"{number}"})
    writer.close()
    assert len(list_segments(run.attempt_path(1))) > 3
    assert [event["reason"] for event in EventReader(run).read().events] == [str(number) for number in range(20)]


def test_a_failed_write_is_raised_and_the_next_event_goes_to_a_new_file(run, monkeypatch):
    writer = EventWriter(run.attempt_path(run.claim_attempt()), 1)
    writer.append("status", {"status": "running", "reason": "one"})

    def fail(_file, _line):
        _file.write(_line[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("exgrpo_core.run_files.event_codec._write_all", fail)
        with pytest.raises(OSError, match="No space"):
            writer.append("status", {"status": "running", "reason": "lost"})
    writer.append("status", {"status": "stopped", "reason": "two"})
    writer.close()
    batch = EventReader(run).read()
    assert [(event["seq"], event["reason"]) for event in batch.events] == [(1, "one"), (3, "two")]
    assert batch.faults == []


def test_an_attempt_has_one_writer(run):
    record(run, range(1, 2))
    with pytest.raises(FileExistsError):
        EventWriter(run.attempt_path(1), 1)


def test_many_steps_without_trajectories_come_in_one_batch_until_it_is_large(run, monkeypatch):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for step in range(1, 101):
        recorder.step(StepReport(step, is_replay_open=False, groups=[], metrics={"reward/mean": 0.5}))
    recorder.close()
    batch = EventReader(run).read()
    assert (len(batch.events), batch.has_more) == (100, False)
    event = batch.events[0]
    assert not step_file(run, 1).exists()
    assert (event["file"], event["trajectories"], event["replays"]) == (None, [], [])
    assert event["metrics"] == {"reward/mean": 0.5}
    monkeypatch.setattr("jobs.runs.recording.event_reader.MAX_BYTES", 1000)
    assert EventReader(run).read().has_more
    assert [event["step"] for event in read_all(run, 16)] == list(range(1, 101))
