"""One attempt whose worker ends: what is written of it, whatever the supervisor sees first."""

import os
import signal
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from jobs.launchers.local import LocalLauncher
from jobs.machine.hardware import VISIBLE_VARIABLE
from jobs.runs.attempts import Heartbeat, write_heartbeat
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.supervisor import watch
from jobs.supervisor.watch import AttemptWatch, StopClock, StopPolicy
from tests.jobs.supervisor.toy_bench import TOY_WORKER, toy_spec


@pytest.mark.parametrize("looks_before_the_exit_code", [True, False])
def test_a_killed_childs_reason_names_the_signal_whichever_comes_first(
    tmp_path, monkeypatch, looks_before_the_exit_code
):
    run = RunDirectory.create(tmp_path, toy_spec(1, "stuck"))
    run.claim_attempt(1)
    launcher = LocalLauncher(TOY_WORKER)
    attempt = AttemptWatch(run, 1, StopPolicy(), launcher)
    attempt.start()
    worker = attempt._find_worker()
    if looks_before_the_exit_code:
        # As while the kernel ends a process: environment and lock are gone, the exit code is not there yet.
        monkeypatch.setattr(watch, "works_on", lambda *_: False)
        monkeypatch.setattr(watch, "has_worker", lambda *_: False)
        assert attempt.poll() is None
        assert not attempt.has_outcome
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    if not looks_before_the_exit_code:
        launcher.reap()
    outcome = attempt.poll()
    assert outcome.status is RunStatus.LOST
    assert "SIGKILL" in outcome.reason


@pytest.mark.parametrize("gpus", [(), ("1", "3")])
def test_after_a_restart_a_workers_own_gpus_are_known_and_not_those_of_its_supervisor(tmp_path, monkeypatch, gpus):
    monkeypatch.setenv(VISIBLE_VARIABLE, "0,1,2,3")
    run = RunDirectory.create(tmp_path, toy_spec(1, "stuck"))
    run.claim_attempt(1)
    launcher = LocalLauncher(TOY_WORKER)
    worker = launcher.start(run, 1, gpus)
    write_heartbeat(run.attempt_path(1), Heartbeat(worker, RunStatus.RUNNING, 0, datetime.now(UTC)))
    assert AttemptWatch(run, 1, StopPolicy(), launcher).gpus == gpus
    os.kill(worker.pid, signal.SIGKILL)


def test_of_a_time_without_a_look_little_counts_as_waiting_for_a_stop(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    run = RunDirectory.create(tmp_path, toy_spec(1))
    clock = StopClock(run)
    assert clock.seconds() < 0
    run.request_stop()
    waited = []
    for now[0] in (10.0, 10.5, 21.0, 1_221.0, 1_222.0):
        waited.append(clock.seconds())
    assert waited == [0.0, 0.5, 11.0, 36.0, 37.0]
