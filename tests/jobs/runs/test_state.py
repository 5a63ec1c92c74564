import os

import pytest

from exgrpo.jobs.actions.run_actions import resume, stop
from exgrpo.jobs.runs import state
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core import recording
from exgrpo_core.recording.run_status import RunStatus


def test_a_worker_that_writes_its_outcome_and_ends_while_it_is_looked_at_is_not_lost(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, load_preset("chains-exgrpo"))
    run.attempt_path(1).mkdir(parents=True)

    def has_process(path, _heartbeat) -> bool:
        write_outcome(path, RunStatus.FAILED, "data.source: the data are missing.")
        return False

    monkeypatch.setattr(state, "has_process", has_process)
    read = read_state(run)
    assert (read.status, read.reason) == (RunStatus.FAILED, "data.source: the data are missing.")


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
