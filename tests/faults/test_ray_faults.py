"""Row 9: the head of a Ray cluster killed, a job stuck, a dashboard that does not answer, on a real cluster."""

import os
import signal
import time

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries import metrics
from exgrpo.jobs.actions import run_actions
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.runs.launchers.conftest import cluster, ray_bench  # noqa: F401 - fixtures
from tests.jobs.runs.launchers.ray_bench import ray_spec
from tests.processes import is_gone

pytestmark = [pytest.mark.fault_row(9), pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(900)]

MANY_STEPS = 100_000
LOST_SECONDS = 60.0


@pytest.fixture
def training(ray_bench, cluster):  # noqa: F811 - the fixture
    run_id = ray_bench.submit(ray_spec(cluster.address, MANY_STEPS, checkpoint_interval=5))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.RUNNING)
    ray_bench.wait_for_step(run_id, 12)
    return run_id


def seconds_until_lost(bench, run_id):
    began_at = time.monotonic()
    bench.look_until(run_id, RunStatus.LOST)
    return time.monotonic() - began_at


def resume_and_stop(bench, run_id):
    """Resubmit a lost run, let it train and stop it; every step of it then counts once."""
    checkpoints = sorted(bench.run_of(run_id).checkpoints_path.glob("step-*"))
    step = int(checkpoints[-1].name.removeprefix("step-"))
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, step + 10)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    database = open_database(None, bench.runs_root)
    series = metrics.metric_series(database, run_id, ["reward/mean"], 100_000)["reward/mean"]
    database.close()
    assert [point.step for point in series] == list(range(1, len(series) + 1))


def test_a_stuck_job_is_ended_and_lost_and_goes_on_from_its_last_checkpoint(training, ray_bench, figure):  # noqa: F811 - the fixtures
    pid = ray_bench.worker_pid(training)
    os.kill(pid, signal.SIGSTOP)
    seconds = seconds_until_lost(ray_bench, training)
    assert "no heartbeat" in ray_bench.reason_of(training)
    assert is_gone(pid)
    resume_and_stop(ray_bench, training)
    figure("job stuck", f"lost after {seconds:.0f} s, resumed from its last checkpoint")
    assert seconds < LOST_SECONDS


def test_a_dashboard_that_does_not_answer_ends_no_run_that_shows_itself_alive(training, ray_bench, cluster, figure):  # noqa: F811 - the fixtures
    dashboard = [process for process in cluster.processes() if "dashboard.py" in " ".join(process.cmdline())]
    assert dashboard
    for process in dashboard:
        process.suspend()
    try:
        until, step = time.monotonic() + LOST_SECONDS, ray_bench.step_of(training)
        ray_bench.look_while(lambda: time.monotonic() < until, "a minute to pass")
        assert ray_bench.status_of(training) is RunStatus.RUNNING
        assert ray_bench.step_of(training) > step + 100
        os.kill(ray_bench.worker_pid(training), signal.SIGSTOP)
        seconds = seconds_until_lost(ray_bench, training)
    finally:
        for process in dashboard:
            process.resume()
    assert "out of reach" in ray_bench.reason_of(training)
    resume_and_stop(ray_bench, training)
    figure(
        "dashboard unreachable", f"the run continues; without heartbeats it is lost after {seconds:.0f} s, and resumed"
    )
    assert seconds < LOST_SECONDS


def test_with_its_head_killed_a_run_is_lost_and_goes_on_on_the_next_cluster(training, ray_bench, cluster, figure):  # noqa: F811 - the fixtures
    cluster.kill()
    seconds = seconds_until_lost(ray_bench, training)
    assert "out of reach" in ray_bench.reason_of(training)
    cluster.start()
    resume_and_stop(ray_bench, training)
    figure("head killed", f"lost after {seconds:.0f} s, resumed on the next cluster from its last checkpoint")
    assert seconds < LOST_SECONDS
