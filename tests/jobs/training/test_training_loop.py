import contextlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exgrpo_core.config import LogProbRefresh
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.experience_management.storage.snapshot import encode_block, iterate_blocks, read_columns
from exgrpo_core.faults import FaultKind, describe_fault
from exgrpo_core.state import StateError
from jobs.recording.event_reader import iterate_events
from jobs.recording.log_damage import find_experience_damage
from jobs.runs.checkpoints import DamagedCheckpointError, checkpoint_path, describe_resume
from jobs.runs.control import RunStatus, TrainingError
from jobs.runs.directory import RunDirectory
from tests.faults import recorded
from tests.faults.small_training import EightNumbers, StepControl, small_spec, train
from tests.jobs.training.killed_runs import KilledError, killed_run, killing_at


def open_files(folder):
    opened = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(path))
    return [path for path in opened if path.startswith(str(folder))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists a process's open files")
def test_a_run_leaves_no_file_of_its_buffer_open_however_it_ends(tmp_path):
    run = RunDirectory.create(tmp_path, small_spec(4, 2))
    train(run)
    assert open_files(run.path) == []
    engine = EightNumbers()
    engine.update = None
    broken = RunDirectory.create(tmp_path, small_spec(4, 2))
    with pytest.raises(TypeError, match="not callable"):
        train(broken, engine=engine)
    assert open_files(broken.path) == []


def events_of(run: RunDirectory, attempt: int) -> list[dict[str, Any]]:
    return [event for event in iterate_events(run, "step") if event["attempt"] == attempt]


def changes(events, kind) -> list[list[Any]]:
    return [change for event in events for change in event["buffer_events"] if change[0] == kind]


@pytest.mark.parametrize(("at_step", "first"), [(7, 5), (3, 1)])
def test_newest_keeps_what_was_collected_after_the_checkpoint_and_says_so(tmp_path, at_step, first):
    run = killed_run(tmp_path, "newest", at_step)
    lost = [event for event in events_of(run, 1) if event["step"] >= first]
    foretold = describe_resume(run)
    collected, retired = changes(lost, "inserted"), changes(lost, "retired")
    assert train(run, StepControl(stop_at=first)) is RunStatus.STOPPED
    (again,) = events_of(run, 2)
    assert again["notices"][0] == (
        f"Resumed from step {first - 1}: {len(collected)} trajectories that were collected in steps {first} to "
        f"{at_step} are kept (resume.experience: newest)."
    )
    assert foretold == again["notices"][0].replace("Resumed", "Resumes")
    gone = {change[1] for change in changes([again], "retired")}
    assert {change[1] for change in retired} <= gone
    stored = kept_ids(run, first)
    assert {change[2] for change in collected if change[1] not in gone} <= stored
    ids = [change[2] for change in changes([again], "inserted")]
    assert len(ids) == len(set(ids))


def test_ages_are_the_steps_done_since_also_after_two_resumes_that_did_steps_again(tmp_path):
    run = killed_run(tmp_path, "newest", 7)
    with pytest.raises(KilledError):
        train(run, killing_at(6))
    assert train(run) is RunStatus.FINISHED
    done = [event for attempt in (1, 2, 3) for event in events_of(run, attempt)]
    assert [event["step"] for event in done] == [1, 2, 3, 4, 5, 6, 7, 5, 6, 5, 6, 7, 8, 9]
    inserted: dict[int, int] = {}
    for number, event in enumerate(done):
        chosen = [item["trajectory_ids"][item["chosen"][0]] for item in event["selections"]]
        if chosen:
            ages = [number - inserted[trajectory_id] for trajectory_id in chosen]
            assert event["metrics"]["replay/age_mean"] == pytest.approx(np.mean(ages))
            assert event["metrics"]["replay/age_max"] == max(ages)
            assert min(ages) >= 1
        for change in changes([event], "inserted"):
            inserted.setdefault(change[2], number)


def test_a_trajectory_with_new_log_probs_is_not_said_to_be_inserted_again(tmp_path):
    run = killed_run(tmp_path, "newest", 7, refresh=LogProbRefresh.ON_REPLAY)
    before = {change[2] for change in changes([event for event in events_of(run, 1) if event["step"] <= 4], "inserted")}
    assert train(run, StepControl(stop_at=5)) is RunStatus.STOPPED
    assert sum(event["metrics"]["experience/num_refreshed"] for event in events_of(run, 1)) > 0
    assert before.isdisjoint(change[2] for change in changes(events_of(run, 2), "inserted"))


def kept_ids(run: RunDirectory, step: int) -> set[int]:
    """Return the trajectories of the buffer after a step, those of questions with no correct rollout included."""
    snapshot = checkpoint_path(run.checkpoints_path, step) / "experience" / "buffer.snapshot"
    buffer = ReplayBuffer.restore(run.buffer_path, snapshot)
    rows = [buffer.rows_of(int(question)) for question in buffer.members(0)]
    experiences = buffer.experiences(np.concatenate([*rows, np.empty(0, dtype=np.int64)]))
    buffer.close()
    return {item[2] for item in recorded.buffer_content(run, step)} | {item.trajectory_id for item in experiences}


def test_as_of_checkpoint_drops_it_says_so_and_ends_as_if_never_killed(tmp_path):
    whole = RunDirectory.create(tmp_path / "whole", small_spec(9, 4))
    train(whole)
    run = killed_run(tmp_path, "as_of_checkpoint", 7)
    collected = changes([event for event in events_of(run, 1) if event["step"] > 4], "inserted")
    foretold = describe_resume(run)
    assert train(run) is RunStatus.FINISHED
    assert events_of(run, 2)[0]["notices"][0] == (
        f"Resumed from step 4: {len(collected)} trajectories that were collected in steps 5 to 7 are dropped "
        "(resume.experience: as_of_checkpoint)."
    )
    assert foretold == events_of(run, 2)[0]["notices"][0].replace("Resumed", "Resumes")
    assert recorded.buffer_content(run, 9) == recorded.buffer_content(whole, 9)
    assert recorded.experience_state(run, 9) == recorded.experience_state(whole, 9)


def test_a_run_that_stopped_with_a_checkpoint_has_nothing_to_say(tmp_path):
    run = RunDirectory.create(tmp_path, small_spec(9, 4))
    assert train(run, StepControl(stop_at=6)) is RunStatus.STOPPED
    assert describe_resume(run) == "Resumes from step 6; no experience is newer."
    assert train(run) is RunStatus.FINISHED
    assert not any("Resumed" in notice for event in events_of(run, 2) for notice in event["notices"])


def test_a_recorded_step_is_in_the_buffers_log(tmp_path):
    run = killed_run(tmp_path, "newest", 7, interval=50)
    acknowledged = changes(events_of(run, 1), "inserted")
    assert acknowledged
    spec = small_spec().algorithm
    buffer = ReplayBuffer.open(run.buffer_path, 20, spec.rollouts_per_question, keeps_later=True)
    in_log = dict(buffer.stored_rows())
    assert {change[2]: change[1] for change in acknowledged} == in_log


def test_a_log_that_cannot_be_read_and_a_device_as_a_snapshot_stop_no_resume(tmp_path):
    run = killed_run(tmp_path, "newest", 7)
    (log,) = run.buffer_path.glob("steps-*.log")
    log.write_bytes(log.read_bytes() + encode_block({"step": 8}, {}))
    assert describe_resume(run) == "Resumes from step 4; the log of its replay buffer cannot be read."
    (snapshot,) = run.checkpoints_path.glob("*/experience/buffer.snapshot")
    snapshot.unlink()
    snapshot.symlink_to("/dev/zero")
    assert describe_resume(run).startswith("Resumes from step 0")


@pytest.mark.parametrize("suffix", ["rows", "trajectories"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_later_steps_whose_trajectories_are_damaged_are_named_before_and_at_the_resume(tmp_path, suffix, damage):
    run = killed_run(tmp_path, "newest", 7)
    assert find_experience_damage(run) is None
    damaged = max(run.buffer_path.glob(f"segment-*.{suffix}"))
    damage(damaged)
    fault = find_experience_damage(run)
    assert fault.kind is FaultKind.LOST_EXPERIENCE
    sentence = fault.details
    assert re.match(rf"The experience of steps \d to 7 cannot be kept: buffer/{damaged.name}", sentence)
    assert train(run, StepControl(stop_at=5)) is RunStatus.STOPPED
    (again,) = events_of(run, 2)
    assert sentence in again["notices"][0].replace(f"{run.path}/", "")


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ({"step": "../../x"}, {}), ({"num_trajectories": "x"}, {}), ({"next_trajectory_id": []}, {}),
        ({"retired": ["x"]}, {}), ({"retired": [2**40]}, {}), ({}, {"num_draws": np.zeros(0, np.int32)}),
        ({}, {"drawn_or_seen": np.full(99, 2**31 - 1, np.int32)}),
    ],
)  # fmt: skip
def test_a_log_of_an_imported_run_with_other_content_under_a_right_checksum_is_a_sentence(tmp_path, change, columns):
    run = killed_run(tmp_path, "newest", 7)
    (log,) = run.buffer_path.glob("steps-*.log")
    blocks = [(header, read_columns(log, first, end)) for header, first, end in iterate_blocks(log)]
    blocks[-1] = (blocks[-1][0] | change, blocks[-1][1] | columns)
    log.write_bytes(b"".join(encode_block(header, of_block) for header, of_block in blocks))
    found = find_experience_damage(run)
    assert found is None or "\n" not in describe_fault(found)
    try:
        assert train(run, StepControl(stop_at=5)) is RunStatus.STOPPED
        assert re.search("damaged|lacks steps|cannot be read", events_of(run, 2)[0]["notices"][0])
    except (DamagedCheckpointError, TrainingError, StateError) as error:
        assert "use an older checkpoint" in str(error)  # noqa: PT017
