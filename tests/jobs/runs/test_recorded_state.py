"""The state of a run that a loop of the user's records."""

import os

import pytest

from exgrpo_core import recording
from jobs.actions.run_actions import resume, stop
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.runs.state import read_state


def test_a_recorded_run_is_running_while_its_program_holds_the_lock_and_elsewhere_while_it_grows(tmp_path):
    recorded = recording.start("recorded", None, tmp_path)
    recorded.log(1, trajectories=["text"])
    run = RunDirectory(recorded.path)
    assert read_state(run).status is RunStatus.RUNNING
    for action in (stop, resume):
        with pytest.raises(CommandError):
            action(tmp_path, run.run_id)
    attempt = run.attempt_path(1)
    recorded._attempt.release()  # as a kill does
    assert read_state(run).status is RunStatus.STOPPED
    (attempt / "lock").write_text("another boot")
    assert read_state(run).status is RunStatus.RUNNING
    for path in (next(attempt.glob("record-*")), attempt):
        os.utime(path, (0, 0))
    assert read_state(run).status is RunStatus.STOPPED
    recorded.finish()
    assert read_state(run).status is RunStatus.FINISHED
