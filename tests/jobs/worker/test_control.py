import os

import pytest

from jobs.runs import attempts
from jobs.runs.attempts import read_heartbeat
from jobs.runs.directory import RunDirectory
from jobs.worker.control import WorkerControl
from tests.jobs.supervisor.toy_bench import toy_spec


@pytest.mark.slow
def test_a_worker_sends_heartbeats_while_it_cannot_read_whether_it_was_superseded(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, toy_spec())
    attempt_path = run.attempt_path(run.claim_attempt())
    control = WorkerControl(run, attempt_path)

    def fail(_):
        raise OSError(116, "Stale file handle")

    attempts.set_attempt(attempt_path)
    try:
        monkeypatch.setattr(os, "listdir", fail)
        control.heartbeat(3)
    finally:
        monkeypatch.undo()
        attempts.clear_attempt()
    heartbeat = read_heartbeat(attempt_path)
    assert heartbeat is not None
    assert heartbeat.step == 3
