"""What `exgrpo verify` says of a training run of which files are damaged or missing: each once, and nothing else."""

import shutil
from pathlib import Path

import pytest

from exgrpo_core import recording
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.run_files.event_codec import segment_path
from jobs.actions.run_actions import resume
from jobs.actions.verification import verify_run
from jobs.execution.worker.__main__ import EXIT_FAILED
from jobs.execution.worker.__main__ import main as worker_main
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.runs.state import read_state
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


def test_steps_whose_record_is_damaged_are_named_by_their_place(run):
    lines = change_lines(
        run, 2, lambda lines: [line.replace(b'"', b"'") if at in (3, 4) else line for at, line in enumerate(lines)]
    )
    name = "attempts/0002/events-000001.jsonl"
    places = [sum(map(len, lines[:number])) for number in (3, 4)]
    assert faults(run) == [Fault(FaultKind.DAMAGED_LINE, name, (place,)) for place in places]


def test_a_run_without_any_of_its_checkpoints_is_not_resumed_from_the_start(tmp_path):
    run = killed_run(tmp_path, 7)
    write_outcome(run.attempt_path(1), RunStatus.LOST, "It was killed.")
    shutil.rmtree(run.checkpoints_path)
    with pytest.raises(CommandError):
        resume(run.path.parent, run.run_id)
    assert read_state(run).status is RunStatus.LOST
    assert worker_main([str(run.path), str(run.claim_attempt())]) == EXIT_FAILED
    assert (read_state(run).status, run.attempts()) == (RunStatus.FAILED, [1, 2])


def test_a_row_that_its_recorder_refused_is_named_and_is_no_damage(tmp_path):
    recorded = recording.start("mine", {}, tmp_path)
    recorded.log(1, trajectories=["one", 7])
    recorded.finish()
    [found] = printed_json(tmp_path, "verify")
    assert (found["run_id"], found["fault"]["kind"]) == (recorded.run_id, FaultKind.NOT_RECORDED)
    assert recorded.run_id in exgrpo(tmp_path, "verify", recorded.run_id)
