"""A supervisor leaves a run alone whose file system hangs, and serves the others."""

import pytest

from exgrpo_core import hanging_files
from jobs.actions import run_actions
from jobs.runs.directory import RunDirectory
from jobs.runs.status import RunStatus
from tests.hanging import hanging
from tests.jobs.supervisor.toy_bench import Bench, toy_spec

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(hanging_files, "ANSWER_SECONDS", 0.5)
    bench = Bench(tmp_path / "runs")
    bench.runs_root.mkdir()
    bench.start(max_running=2)
    yield bench
    bench.supervisor.close()


def test_a_new_supervisor_starts_other_runs_and_resumes_the_one_that_hung_once_it_answers(bench):
    run_id = bench.submit(toy_spec(1000))
    bench.look_until(run_id, RunStatus.RUNNING)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    run_actions.resume(bench.runs_root, run_id)
    bench.supervisor.close()
    with hanging(bench.runs_root / run_id):
        bench.start(max_running=2)
        other = bench.submit(toy_spec(3))
        bench.look_until(other, RunStatus.FINISHED)
        assert bench.supervisor.state_of(run_id) is None
        assert not bench.supervisor.is_idle
    bench.look_until(run_id, RunStatus.RUNNING)
    assert bench.run_of(run_id).newest_attempt() == 2
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)


def test_a_running_run_that_hangs_is_neither_ended_nor_lost_and_delays_no_other(bench):
    run_id = bench.submit(toy_spec(100_000))
    bench.look_until(run_id, RunStatus.RUNNING)
    waiting = bench.submit(toy_spec(3).model_copy(update={"waits_for": run_id}))
    with hanging(bench.runs_root / run_id):
        other = bench.submit(toy_spec(3))
        bench.look_until(other, RunStatus.FINISHED)
        assert bench.supervisor.state_of(run_id).status is RunStatus.RUNNING
        assert bench.supervisor.state_of(waiting).status is RunStatus.QUEUED
    # What hung fails when the mount ends: if it was a heartbeat, the run continues until stopped, else it fails.
    RunDirectory(bench.runs_root / run_id).request_stop()
    bench.look_until(run_id, RunStatus.STOPPED, RunStatus.FAILED)
    bench.look_until(waiting, RunStatus.FAILED)
