import dataclasses
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.errors import InputError
from exgrpo_core.recording import file_recorder
from exgrpo_core.recording.file_recorder import MAX_WAITING, FileRecorder
from exgrpo_core.recording.lines import read_tokens
from exgrpo_core.recording.record_file import RecordFile, record_path
from exgrpo_core.recording.recorder import EvaluationRecord, RunRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.types import SeenMiniBatch
from tests.records import tokens_of
from tests.step_reports import make_questions, make_report


def record(run, steps, token_data="successes"):
    """Record one attempt: status, questions, these steps; what the recorder gets after that follows."""
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec(token_data=token_data))
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    for step in steps:
        recorder.step(make_report(step))
        recorder.settle()
    return recorder


def read_all(run, max_steps):
    events, position = [], None
    while True:
        batch = EventReader(run).read(position, max_steps)
        events += batch.events
        position = batch.position
        if not batch.has_more:
            return events


def read_token_data(run, event, trajectory_id, replayed_in=None):
    name, _, place = event["file"].partition("@")
    return read_tokens(run.path / name, place, trajectory_id, replayed_in)


def test_what_is_recorded_is_read_in_order_and_whole(run):
    recorder: RunRecorder = record(run, range(1, 4))
    recorder.evaluation(EvaluationRecord(3, "held_out", ["a", "b"], [1, 2], 4, 0.6, 2.5))
    checkpoint = run.checkpoints_path / "step-00000003"
    checkpoint.mkdir()
    (checkpoint / "weights").write_bytes(b"12345")
    recorder.checkpoint(3, checkpoint)
    recorder.status(RunStatus.FINISHED, "done")
    recorder.close()
    events = EventReader(run).read().events
    kinds = ["status", "questions", "step", "step", "step", "evaluation", "checkpoint", "status"]
    assert [event["kind"] for event in events] == kinds
    numbers = [event["seq"] for event in events]
    assert numbers == sorted({*numbers})
    assert {event["attempt"] for event in events} == {1}
    assert [question["prompt_text"] for question in events[1]["questions"]][:2] == ["Q0: 1+0=?", "Q1: 1+1=?"]
    assert events[5]["num_correct"] == [1, 2]
    assert (events[6]["path"], events[6]["num_bytes"]) == ("checkpoints/step-00000003", 5)
    assert (events[7]["status"], events[7]["reason"]) == ("finished", "done")


def test_a_step_keeps_its_trajectories_and_replays(run):
    record(run, range(2, 3))
    event = EventReader(run).read().events[-1]
    groups = make_report(2).groups
    fresh = [(group, slot) for group in groups for slot in range(len(group.trajectories))]
    assert len(event["trajectories"]) == len(fresh)
    for row, (group, slot) in zip(event["trajectories"], fresh, strict=True):
        made = group.trajectories[slot]
        assert row["text"] == made.text
        assert row["reward"] == made.reward
        assert row["advantage"] == group.advantages[slot]
        assert row["mean_entropy"] == pytest.approx(made.entropies.mean(), rel=1e-6)
        assert row["mean_log_prob"] == pytest.approx(made.log_probs.mean(), rel=1e-6)
        assert (row["num_tokens"], row["is_valid"], row["has_code"]) == (made.token_ids.size, made.is_valid, False)
    replays = [group.replays[0] for group in groups if group.replays]
    assert len(event["replays"]) == len(replays) == 2
    for row, replay in zip(event["replays"], replays, strict=True):
        ratios = np.exp(replay.old_log_probs - replay.experience.behavior_log_probs)
        assert row["trajectory_id"] == replay.experience.trajectory_id
        assert row["mean_ratio"] == pytest.approx(ratios.mean(), rel=1e-5)
        assert row["max_ratio"] == pytest.approx(ratios.max(), rel=1e-6)


@pytest.mark.parametrize("token_data", ["all", "successes", "sampled", "none"])
def test_tokens_are_kept_as_the_retention_setting_says(run, token_data):
    record(run, range(2, 5), token_data)
    for step in range(2, 5):
        for group in make_report(step).groups:
            for made in group.trajectories:
                kept = tokens_of(run.path, made.trajectory_id)
                is_kept = {
                    "all": True, "successes": made.reward >= 1.0, "sampled": made.trajectory_id % 16 == 0,
                    "none": False,
                }[token_data]  # fmt: skip
                assert (kept is not None) == is_kept
                if is_kept:
                    assert kept["token_ids"] == made.token_ids.tolist()
                    assert kept["entropies"] == made.entropies.astype(np.float16).tolist()


@pytest.mark.parametrize("token_data", ["all", "successes", "sampled", "none"])
def test_what_an_update_saw_is_kept_with_all_tokens_only(run, token_data):
    recorder = record(run, range(1, 2), token_data)
    recorder.step(dataclasses.replace(make_report(2), mini_batches=[SeenMiniBatch({"total": 0.5}, {})]))
    recorder.close()
    assert ("mini_batches" in EventReader(run).read().events[-1]) is (token_data == "all")


@pytest.mark.parametrize("token_data", ["successes", "none"])
def test_a_replayed_trajectory_keeps_all_its_token_values(run, token_data):
    record(run, range(2, 3), token_data)
    replay = make_report(2).groups[-1].replays[0]
    event = EventReader(run).read().events[-1]
    kept = read_token_data(run, event, replay.experience.trajectory_id, 2)
    assert kept["token_ids"] == replay.experience.token_ids.tolist()
    assert kept["log_probs"] == replay.old_log_probs.tolist()
    assert kept["behavior_log_probs"] == replay.experience.behavior_log_probs.tolist()
    assert kept["entropies"] == replay.entropies.astype(np.float16).tolist()
    with pytest.raises(KeyError):
        read_token_data(run, event, 999)


def test_odd_trajectories_are_recorded(run):
    report = make_report(1)
    first, second = report.groups[0].trajectories[:2]
    first.entropies = None
    first.text = "broken \ud800 half"
    second.token_ids, second.log_probs = second.token_ids[:0], second.log_probs[:0]
    second.entropies = second.entropies[:0]
    report.groups[0].advantages = None
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec(token_data="all"))
    recorder.step(report)
    recorder.close()
    rows = EventReader(run).read().events[-1]["trajectories"]
    assert rows[0]["text"] == "broken \ud800 half"
    assert (rows[0]["mean_entropy"], rows[1]["mean_log_prob"], rows[0]["advantage"]) == (None, None, None)
    assert rows[2]["mean_entropy"] == pytest.approx(report.groups[0].trajectories[2].entropies.mean(), rel=1e-6)


@pytest.mark.parametrize("call", ["settle", "status", "record", "questions", "close"])
def test_a_step_that_cannot_be_written_is_raised_by_the_next_call_and_once(run, call, monkeypatch):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", fail)
        recorder.step(make_report(1))
        while recorder._failed is None:
            time.sleep(0.01)
    arguments = {
        "settle": (), "status": (RunStatus.FINISHED,), "record": ("asked", {}),
        "questions": (make_questions(), "training"),
    }.get(call, ())  # fmt: skip
    with pytest.raises(OSError, match="No space"):
        getattr(recorder, call)(*arguments)
    if call == "close":
        return
    recorder.step(make_report(3))
    recorder.status(RunStatus.STOPPED)
    recorder.close()
    assert [event["kind"] for event in EventReader(run).read().events] == ["status", "step", "status"]


def fail(*_):
    raise OSError(28, "No space left on device")


def replaying(step, replay):
    """Return a report with one group more, which replays the same as others."""
    report = make_report(step)
    group = dataclasses.replace(report.groups[-1], trajectories=[], replays=(replay,), advantages=np.ones(1))
    return dataclasses.replace(report, groups=[*report.groups, group])


def record_fast(run, reports, monkeypatch):
    """Record the first report alone and the others together, sixteen at a time."""
    monkeypatch.setattr(file_recorder, "WRITE_EVERY_SECONDS", 3600.0)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec(token_data="all"))
    for number, report in enumerate(reports):
        recorder.step(report)
        if number == 0:
            recorder.settle()
    recorder.close()


def test_steps_that_come_fast_are_written_together_and_read_as_if_they_were_not(tmp_path, monkeypatch):
    slow, fast = (RunDirectory.create(tmp_path / name, TrainSpec()) for name in ("slow", "fast"))
    stored = make_report(2).groups[-1].replays[0]
    replays = [
        dataclasses.replace(stored, old_log_probs=np.full_like(stored.old_log_probs, -step)) for step in range(40)
    ]
    reports = [replaying(step, replays[step]) for step in range(1, 40)]
    reports[7] = dataclasses.replace(reports[7], groups=[])
    recorder = FileRecorder(slow, slow.claim_attempt(), RecordingSpec(token_data="all"))
    for report in reports:
        recorder.step(report)
        recorder.settle()
    recorder.close()
    record_fast(fast, reports, monkeypatch)
    slow_events, fast_events = (EventReader(run).read(max_steps=1000).events for run in (slow, fast))
    for one, other in zip(slow_events, fast_events, strict=True):
        places = {"at": "", "file": ""}
        np.testing.assert_equal({**one, **places}, {**other, **places})
    assert fast_events[7]["file"] is None
    sizes = Counter(event["file"] for event in fast_events if event["file"])
    assert sorted(sizes.values()) == [1, 6, MAX_WAITING - 1, MAX_WAITING]
    for event in fast_events[2:7]:
        step = event["step"]
        replayed = read_token_data(fast, event, stored.experience.trajectory_id, step)
        assert replayed["log_probs"] == replays[step].old_log_probs.tolist()
        made = make_report(step).groups[0].trajectories[0]
        assert read_token_data(fast, event, made.trajectory_id)["token_ids"] == made.token_ids.tolist()


def test_steps_that_are_written_together_keep_their_own_times_and_a_fast_one_waits_no_longer_than_it_should(
    run, monkeypatch
):
    began_at = datetime(2026, 1, 1, tzinfo=UTC)
    times = [began_at + timedelta(seconds=number) for number in range(3)]
    clock = iter(times)
    monkeypatch.setattr(file_recorder, "datetime", SimpleNamespace(now=lambda _: next(clock)))
    monkeypatch.setattr(file_recorder, "WRITE_EVERY_SECONDS", 0.3)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.step(make_report(1))
    recorder.settle()
    for step in (2, 3):
        recorder.step(make_report(step))
    deadline = time.monotonic() + 20.0
    while len(recorded := EventReader(run).read().events) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    recorder.close()
    assert [datetime.fromisoformat(event["at"]) for event in recorded] == times


def test_of_a_step_that_comes_twice_the_first_record_stays_also_among_those_written_together(run, monkeypatch, caplog):
    steps = [1, 2, 3, 2, 1]
    record_fast(run, [make_report(step, seed) for seed, step in enumerate(steps)], monkeypatch)
    events = EventReader(run).read().events
    assert [event["step"] for event in events] == [1, 2, 3]
    assert events[1]["trajectories"][0]["text"] == make_report(2, 1).groups[0].trajectories[0].text
    assert caplog.text.count("recorded already") == 2


def test_parts_of_the_reward_and_the_prefix_of_a_rollout_are_columns_of_its_own(run):
    report = make_report(4)
    first = report.groups[0].trajectories[0]
    first.reward_parts, first.num_prefix_tokens, first.prefix_of = {"format": 1.0, "mine:code": 0.25}, 2, 7
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.step(report)
    recorder.close()
    first, second = EventReader(run).read().events[-1]["trajectories"][:2]
    parts = {"reward/format": 1.0, "reward/mine:code": 0.25}
    assert first["extra"] == parts | {"num_prefix_tokens": 2, "prefix_of": 7}
    assert "extra" not in second


@pytest.mark.parametrize("version", [2, 3])
def test_rollouts_generated_ahead_keep_the_version_and_log_probs_of_the_policy_that_wrote_them(run, version):
    report = make_report(4)
    for group in report.groups:
        for item in group.trajectories:
            item.rollout_step, item.policy_version = 4, version
            item.sampler_log_probs = item.log_probs - np.float32(0.25)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec(token_data="all"))
    recorder.step(report)
    recorder.close()
    event = EventReader(run).read().events[-1]
    item, is_ahead = report.groups[0].trajectories[0], version == 2
    assert event["trajectories"][0].get("extra") == ({"policy_version": 2} if is_ahead else None)
    kept = read_token_data(run, event, item.trajectory_id)
    assert kept["behavior_log_probs"] == (item.sampler_log_probs.tolist() if is_ahead else None)


def changed(questions, **changes):
    return [dataclasses.replace(questions[0], **changes), *questions[1:]]


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda questions: changed(questions, answer="8"), "1 of 16"),
        (lambda questions: changed(questions, prompt_text="Q0: 1 + 0 = ?"), "1 of 16"),
        (lambda questions: questions[:-2], "2 of 16"),
        (lambda questions: changed(questions[:-1], answer="8"), "2 of 16"),
        (lambda questions: questions + make_questions(20)[16:], "4 of 16"),
        (lambda questions: questions[::-1], "order"),
    ],
)
def test_an_attempt_with_other_prompts_or_golds_than_the_first_is_refused_with_their_number(run, change, count):
    for attempt in (1, 2):
        recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
        recorder.questions(make_questions(), "held_out")
        recorder.close()
        assert attempt == run.newest_attempt()
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    with pytest.raises(InputError) as refused:
        recorder.questions(change(make_questions()), "held_out")
    recorder.close()
    assert count in str(refused.value)
    assert "held_out" in str(refused.value)


def test_questions_whose_record_is_damaged_are_not_compared(run):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.questions(make_questions(), "training")
    recorder.close()
    path = record_path(run.attempt_path(1))
    path.write_bytes(path.read_bytes()[:-1])
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.questions(make_questions(3), "training")
    recorder.close()
    [event] = EventReader(run).read().events
    assert (event["attempt"], len(event["questions"])) == (2, 3)


def test_an_attempt_has_one_writer(run):
    record(run, range(1, 2))
    with pytest.raises(FileExistsError):
        FileRecorder(run, 1, RecordingSpec())
