"""Row 8: a clock that is set by an hour, a worker's or the supervisor's, changes no duration and ends no run."""

import os
import re
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from db.connections.opening import open_database
from db.queries.runs import get_run, list_attempts
from jobs.actions import run_actions
from jobs.launchers.local import LocalLauncher
from jobs.runs.attempts import Heartbeat, read_heartbeat
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.processes import ProcessIdentity
from jobs.runs.state import RayContact, has_recent_contact, has_worker, read_state
from jobs.supervisor.instance import SingleInstance
from jobs.supervisor.loop import Supervisor, SupervisorSettings
from jobs.supervisor.watch import StopPolicy
from tests.faults.shifted_worker import OFFSET_FILE
from tests.jobs.conftest import bench  # noqa: F401 - a fixture
from tests.jobs.supervisor.toy_bench import Bench, toy_spec, wait_until

pytestmark = pytest.mark.fault_row(8)

HOUR = 3600.0
SHIFTED_WORKER = "tests.faults.shifted_worker"


@pytest.fixture
def shifted(bench: Bench) -> Bench:  # noqa: F811 - the fixture
    settings = SupervisorSettings(1, StopPolicy(60.0, 60.0))
    launcher = LocalLauncher(SHIFTED_WORKER, sys.executable)
    bench.supervisor = Supervisor(bench.runs_root, launcher, settings)
    return bench


def ignores_sigterm(pid: int) -> bool:
    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def set_clock(runs_root: Path, seconds: float) -> None:
    (runs_root / OFFSET_FILE).write_text(str(seconds))


@pytest.mark.parametrize(("seconds", "end"), [(HOUR, "finished"), (-HOUR, "killed")])
def test_a_run_takes_as_long_as_it_took_when_its_clock_is_set(shifted, seconds, end, figure):
    began_at = time.monotonic()
    run_id = shifted.submit(toy_spec(60))
    shifted.look_until(run_id, RunStatus.RUNNING)
    shifted.wait_for_step(run_id, 2)
    set_clock(shifted.runs_root, seconds)
    shifted.wait_for_step(run_id, 5)
    heartbeat = read_heartbeat(shifted.run_of(run_id).attempt_path(1))
    assert abs(heartbeat.at - datetime.now(UTC)) < timedelta(minutes=1)
    if end == "killed":
        os.kill(shifted.worker_pid(run_id), signal.SIGKILL)
    shifted.look_until(run_id, RunStatus.FINISHED, RunStatus.LOST)
    elapsed = time.monotonic() - began_at
    database = open_database(None, shifted.runs_root)
    (attempt,), row = list_attempts(database, run_id), get_run(database, run_id)
    database.close()
    for item in (attempt, row):
        assert timedelta(0) <= item.ended_at - item.started_at <= timedelta(seconds=elapsed)
    figure(f"duration of a run that {end} with its clock set by {seconds:+.0f} s", "right")


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_stop_is_as_patient_as_it_says_when_the_supervisors_clock_is_set(bench, seconds, monkeypatch):  # noqa: F811
    supervisor = bench.start(grace_seconds=1.5, term_seconds=0.5)
    run_id = bench.submit(toy_spec(3, "stuck"))
    bench.look_until(run_id, RunStatus.RUNNING)
    wait_until(lambda: ignores_sigterm(bench.worker_pid(run_id)), "the worker to ignore SIGTERM")
    run_actions.stop(bench.runs_root, run_id)
    asked_at = time.monotonic()
    supervisor.poll()
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert time.monotonic() - asked_at >= 2.0


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_worker_that_never_came_is_not_waited_for_when_the_clock_is_set(tmp_path, seconds, monkeypatch):
    assert has_worker(tmp_path, None)
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)
    assert not has_worker(tmp_path, None)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_heartbeat_by_another_clock_tells_nothing_of_a_job_on_a_cluster(seconds):
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    heartbeat = Heartbeat(ProcessIdentity(1, 0.0, "boot"), RunStatus.RUNNING, 3, at)
    contact = RayContact("folder", "http://head", "job", True, False, 0, time.time() - 60.0)
    assert not has_recent_contact(contact, heartbeat)


@pytest.mark.parametrize("is_supervised", [True, False])
def test_a_new_attempt_on_a_file_server_with_another_clock_is_starting(tmp_path, is_supervised):
    run = RunDirectory.create(tmp_path, toy_spec())
    path = run.attempt_path(run.claim_attempt())
    supervisor = SingleInstance(tmp_path)
    supervisor.beat(0)
    for of_server in (path, tmp_path / "workbench" / "supervisor.json"):
        os.utime(of_server, (time.time() - 2 * HOUR,) * 2)
    if not is_supervised:
        supervisor.release()
    assert read_state(run).status is (RunStatus.STARTING if is_supervised else RunStatus.LOST)
    supervisor.release()
