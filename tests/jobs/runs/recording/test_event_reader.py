import pytest

from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.lines import encode_line
from exgrpo_core.recording.record_file import RecordFile, read_members, record_path
from exgrpo_core.step_report import StepReport
from tests.exgrpo_core.recording.test_file_recorder import read_all, record, record_fast
from tests.step_reports import make_questions, make_report

pytestmark = pytest.mark.slow
AT = "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("max_steps", [1, 100])
def test_reading_in_parts_gives_each_event_once(run, max_steps, monkeypatch):
    record(run, range(1, 6))
    record_fast(run, [make_report(step) for step in range(3, 10)], monkeypatch)
    events = read_all(run, max_steps)
    places = [(event["attempt"], event["seq"]) for event in events]
    assert places == sorted({*places})
    assert [place for place, _ in places] == [1] * 7 + [2] * 7
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
    assert found == [(1, "training", 16), (1, "held_out", 2)]


def kinds_of(batch):
    return [event["kind"] for event in batch.events]


def test_a_torn_last_step_waits_until_it_is_whole(run):
    record(run, range(1, 4))
    path = record_path(run.attempt_path(1))
    content = path.read_bytes()
    last = [*read_members(path)][-1].begin
    for cut in (last, (last + len(content)) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        batch = EventReader(run).read()
        assert kinds_of(batch) == ["status", "questions", "step", "step"]
        assert batch.faults == []
    path.write_bytes(content)
    assert [event["step"] for event in EventReader(run).read(batch.position).events] == [3]


def test_a_torn_step_of_an_older_attempt_is_left_behind(run):
    record(run, range(1, 4))
    path = record_path(run.attempt_path(1))
    path.write_bytes(path.read_bytes()[:-10])
    record(run, range(3, 5))
    steps = [(event["attempt"], event["step"]) for event in read_all(run, 100) if event["kind"] == "step"]
    assert steps == [(1, 1), (1, 2), (2, 3), (2, 4)]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1] + b"x",
        lambda content: b"x" + content[1:],
        lambda content: content[: len(content) // 2],
    ],
)
def test_a_damaged_step_is_passed_over_and_named(run, change):
    record(run, range(1, 4))
    path = record_path(run.attempt_path(1))
    content, members = path.read_bytes(), [*read_members(path)]
    parts = [content[member.begin : member.end] for member in members]
    path.write_bytes(b"".join((*parts[:3], change(parts[3]), parts[4])))
    batch = EventReader(run).read()
    assert [event.get("step") for event in batch.events] == [None, None, 1, 3]
    name = str(path.relative_to(run.path))
    assert batch.faults == [Fault(FaultKind.DAMAGED_LINE, name, (members[3].begin,))]


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"7", b"{}", encode_line("step", {"step": -1, "at": AT}), encode_line("step", {"step": True, "at": AT}),
        encode_line("metrics", {"step": 1, "at": AT, "metrics": 7}), encode_line("status", {"at": "now"}),
        encode_line("questions", {"at": AT, "questions": [{"details": {"question": 5}}]}),
    ],
)  # fmt: skip
def test_lines_that_no_recorder_writes_are_passed_over_and_named(run, line):
    run.attempt_path(run.claim_attempt())
    file = RecordFile(record_path(run.attempt_path(1)))
    file.append([line])
    file.append([encode_line("status", {"at": AT, "status": "running", "reason": ""})])
    file.close()
    batch = EventReader(run).read()
    assert kinds_of(batch) == ["status"]
    assert [fault.kind for fault in batch.faults] == [FaultKind.DAMAGED_LINE]


def test_many_steps_without_trajectories_come_in_one_batch_until_it_is_large(run, monkeypatch):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for step in range(1, 101):
        recorder.step(StepReport(step, is_replay_open=False, groups=[], metrics={"reward/mean": 0.5}))
    recorder.close()
    batch = EventReader(run).read()
    assert (len(batch.events), batch.has_more) == (100, False)
    event = batch.events[0]
    assert (event["file"], event["trajectories"], event["replays"]) == (None, [], [])
    assert event["metrics"] == {"reward/mean": 0.5}
    monkeypatch.setattr("exgrpo.jobs.runs.recording.event_reader.MAX_BYTES", 100)
    assert EventReader(run).read().has_more
    assert [event["step"] for event in read_all(run, 16)] == list(range(1, 101))
