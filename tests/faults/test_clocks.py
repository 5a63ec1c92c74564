"""Row 8: a supervisor's clock that is set by an hour ends no run and makes no stop less patient."""

import re
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.runs.attempts import Heartbeat
from exgrpo.jobs.runs.processes import ProcessIdentity
from exgrpo.jobs.runs.state import RayContact, has_recent_contact, has_worker
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.conftest import bench  # noqa: F401 - a fixture
from tests.jobs.execution.supervisor.toy_bench import toy_spec, wait_until

pytestmark = pytest.mark.fault_row(8)

HOUR = 3600.0


def ignores_sigterm(pid):
    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


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
