import shutil
from pathlib import Path

import pytest

from exgrpo.jobs.actions.run_actions import resume
from exgrpo.jobs.actions.verification import verify_run
from exgrpo.jobs.execution.worker.__main__ import EXIT_FAILED
from exgrpo.jobs.execution.worker.__main__ import main as worker_main
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo_core import recording
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.record_file import read_members
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import train
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.training.killed_runs import killed_run


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
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


NAME = "attempts/0002/record-0000-of-0001.jsonl.gz"


def change_members(run: RunDirectory, change) -> list[int]:
    """Replace the members of the second attempt by what `change` returns of them; return where they began."""
    path = run.path / NAME
    content, members = path.read_bytes(), [*read_members(path)]
    path.write_bytes(b"".join(change([content[member.begin : member.end] for member in members])))
    return [*(member.begin for member in members), len(content)]


@pytest.mark.parametrize("num_left", [0, -2])
def test_a_lost_end_is_named_also_of_a_file_that_is_gone(run, num_left):
    places = change_members(run, lambda members: members[:num_left])
    if num_left == 0:
        (run.path / NAME).unlink()
    assert faults(run) == [Fault(FaultKind.MISSING_EVENTS, NAME, (places[num_left - 1 if num_left else 0], places[-1]))]


def test_steps_whose_record_is_damaged_are_named_by_their_place(run):
    def change(members):
        return [member[:-8] + b"xxxx" + member[-4:] if at in (2, 3) else member for at, member in enumerate(members)]

    places = change_members(run, change)
    assert faults(run) == [Fault(FaultKind.DAMAGED_LINE, NAME, (place,)) for place in places[2:4]]


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
