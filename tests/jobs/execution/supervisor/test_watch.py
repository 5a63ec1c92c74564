import os
import signal
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from exgrpo.jobs.execution.supervisor import loop, watch
from exgrpo.jobs.execution.supervisor.loop import Supervisor, SupervisorSettings
from exgrpo.jobs.execution.supervisor.watch import AttemptWatch, StopPolicy
from exgrpo.jobs.machine.hardware import VISIBLE_VARIABLE
from exgrpo.jobs.runs.attempts import Heartbeat, read_outcome, write_heartbeat, write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.processes import ProcessIdentity, works_on
from exgrpo_core.recording.attempt_gate import is_over
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, toy_spec, wait_until

pytestmark = pytest.mark.slow


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
        assert read_outcome(run.attempt_path(1)) is None
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
    while not works_on(worker, run.attempt_path(1)):  # before its program begins it has this one's environment
        time.sleep(0.01)
    write_heartbeat(run.attempt_path(1), Heartbeat(worker, RunStatus.RUNNING, 0, datetime.now(UTC)))
    assert AttemptWatch(run, 1, StopPolicy(), launcher).gpus == gpus
    os.kill(worker.pid, signal.SIGKILL)


def test_a_worker_of_another_machine_is_lost_when_it_is_silent_until_it_sends_heartbeats_again(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOST_SECONDS", 0.0)
    monkeypatch.setattr(watch, "CONTACT_TIMEOUT_SECONDS", 2.0)
    run = RunDirectory.create(tmp_path, toy_spec(1))
    path = run.attempt_path(run.claim_attempt(1))
    run.request_attempt(1)
    elsewhere, moments = ProcessIdentity(2**22, 1.0, "another boot"), iter(range(1, 100))

    def beat() -> None:
        at = datetime.now(UTC) + timedelta(milliseconds=next(moments))
        write_heartbeat(path, Heartbeat(elsewhere, RunStatus.RUNNING, 3, at))

    settings = SupervisorSettings(stop_policy=StopPolicy(silent_seconds=0.5))
    with closing(Supervisor(tmp_path, settings=settings)) as supervisor:

        def status() -> RunStatus:
            supervisor.poll()
            return supervisor.state_of(run.run_id).status

        for _ in range(8):
            beat()
            assert status() is RunStatus.RUNNING
            time.sleep(0.1)
        time.sleep(0.6)
        assert status() is RunStatus.RUNNING, "a network file system shows heartbeats late"
        wait_until(lambda: status() is RunStatus.LOST, "the silence")
        assert supervisor.is_idle
        assert not is_over(path), "the worker goes on if it can"
        beat()
        assert status() is RunStatus.RUNNING
        assert not supervisor.is_idle
        write_outcome(path, RunStatus.FINISHED, "")
        wait_until(lambda: status() is RunStatus.FINISHED, "the end")
        assert is_over(path)
