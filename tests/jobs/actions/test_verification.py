"""What `exgrpo verify` says of a training run of which files are damaged or missing: each once, and nothing else."""

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

from exgrpo_core import recording
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.run_files.attempt_gate import LOCK_FILE, OUTCOME_FILE
from exgrpo_core.run_files.event_codec import EventWriter, segment_path
from jobs.actions.run_actions import resume
from jobs.actions.verification import verify_run
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.runs.processes import FileLock
from jobs.runs.state import STARTUP_SECONDS, read_state
from jobs.worker.__main__ import EXIT_FAILED
from jobs.worker.__main__ import main as worker_main
from tests.faults.small_training import train
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.training.killed_runs import killed_run


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of 9 steps that was killed at step 7 and resumed from its checkpoint of step 4."""
    run = killed_run(tmp_path_factory.mktemp("runs"), 7)
    write_outcome(run.attempt_path(1), RunStatus.LOST, "It was killed.")
    assert train(run) is RunStatus.FINISHED
    write_outcome(run.attempt_path(2), RunStatus.FINISHED, "")
    assert verify_run(run) == []
    return run


@pytest.fixture
def run(resumed: RunDirectory, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(resumed.path, tmp_path / resumed.run_id)))


def faults(run: RunDirectory) -> list[Fault]:
    return [damage.fault for damage in verify_run(run)]


def change_lines(run: RunDirectory, attempt: int, change) -> list[bytes]:
    """Replace the lines of an attempt's events by what `change` returns of them."""
    path = segment_path(run.attempt_path(attempt), 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))
    return lines


def test_missing_trajectories_are_named_once_without_the_system_s_words(run, caplog):
    name = "attempts/0001/trajectories/step-00000001.parquet"
    (run.path / name).unlink()
    assert faults(run) == [Fault(FaultKind.MISSING, name)]
    assert caplog.text == ""


def test_missing_questions_of_two_attempts_are_named_once(run):
    (questions,) = run.attempt_path(1).glob("questions-training.parquet")
    questions.unlink()
    assert faults(run) == [Fault(FaultKind.MISSING, "attempts/0001/questions-training.parquet")]


@pytest.mark.parametrize("num_left", [0, -2])
def test_lost_events_at_the_end_are_named(run, num_left):
    lines = change_lines(run, 2, lambda lines: lines[:num_left])
    (fault,) = faults(run)
    assert (fault.kind, fault.file) == (FaultKind.MISSING_EVENTS, "attempts/0002")
    assert fault.position[1] == len(lines)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def remove_outcome(run: RunDirectory, attempt: int) -> None:
    """Remove an attempt's outcome, of a worker that was started too long ago to be starting still."""
    path = run.attempt_path(attempt)
    (path / OUTCOME_FILE).unlink()
    os.utime(path, (time.time() - 2 * STARTUP_SECONDS,) * 2)


def test_a_missing_outcome_is_named_if_the_events_say_that_the_attempt_ended(run):
    remove_outcome(run, 1)
    assert faults(run) == []
    remove_outcome(run, 2)
    assert faults(run) == [Fault(FaultKind.NO_END, "attempts/0002/outcome.json", details="finished")]


def test_an_outcome_that_a_worker_has_still_to_write_is_not_missed(run):
    lock = FileLock(run.attempt_path(2) / LOCK_FILE)
    assert lock.acquire()
    remove_outcome(run, 2)
    assert faults(run) == []
    lock.release()
    assert len(faults(run)) == 1


def test_steps_whose_record_is_damaged_are_named_by_their_place(run):
    lines = change_lines(
        run, 2, lambda lines: [line.replace(b'"', b"'") if at in (3, 4) else line for at, line in enumerate(lines)]
    )
    name = "attempts/0002/events-000001.jsonl"
    places = [sum(map(len, lines[:number])) for number in (3, 4)]
    assert faults(run) == [Fault(FaultKind.DAMAGED_LINE, name, (place,)) for place in places]


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("attempts", ["attempts/0001", "attempts/0002"]),
        ("attempts/0001", ["attempts/0001"]),
        ("attempts/0002", ["attempts/0002"]),
        ("checkpoints", ["checkpoints/step-00000009"]),
        ("checkpoints/step-00000009", ["checkpoints/step-00000009"]),
    ],
)
def test_a_whole_loss_is_named_and_the_run_is_not_started_anew_by_itself(run, lost, named):
    run.request_attempt(2)
    shutil.rmtree(run.path / lost)
    missing = [fault.file for fault in faults(run) if fault.kind is FaultKind.MISSING and not Path(fault.file).suffix]
    assert missing == named
    is_newest = "attempts/0002" in named
    assert read_state(run).status is (RunStatus.LOST if is_newest else RunStatus.FINISHED)
    assert read_state(run).attempt == 2


def test_a_run_without_any_of_its_checkpoints_is_not_resumed_from_the_start(tmp_path):
    run = killed_run(tmp_path, 7)
    write_outcome(run.attempt_path(1), RunStatus.LOST, "It was killed.")
    shutil.rmtree(run.checkpoints_path)
    with pytest.raises(CommandError):
        resume(run.path.parent, run.run_id)
    assert read_state(run).status is RunStatus.LOST
    assert worker_main([str(run.path), str(run.claim_attempt())]) == EXIT_FAILED
    assert (read_state(run).status, run.attempts()) == (RunStatus.FAILED, [1, 2])


def test_the_lost_answers_of_an_evaluation_with_scores_are_named(run):
    with closing(EventWriter(run.attempt_path(run.claim_attempt()), 3)) as events:
        events.append("benchmark", {"benchmark": "math500"})
    assert [fault.file for fault in faults(run)] == ["evaluation/math500-*.jsonl"]


def test_a_row_that_its_recorder_refused_is_named_and_is_no_damage(tmp_path):
    recorded = recording.start("mine", {}, tmp_path)
    recorded.log(1, trajectories=["one", 7])
    recorded.finish()
    [found] = printed_json(tmp_path, "verify")
    assert (found["run_id"], found["fault"]["kind"]) == (recorded.run_id, FaultKind.NOT_RECORDED)
    assert recorded.run_id in exgrpo(tmp_path, "verify", recorded.run_id)
