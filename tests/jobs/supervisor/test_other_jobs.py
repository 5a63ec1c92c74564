import os
import signal

import pytest

from db.connections.opening import open_database
from db.queries import runs
from jobs.actions import run_actions
from jobs.runs.control import RunStatus
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from tests.jobs.supervisor.toy_bench import Bench, processes_of

pytestmark = pytest.mark.slow


def toy_evaluation(num_pieces: int) -> EvalSpec:
    model = EvalModelSpec(source="a-model")
    return EvalSpec(name="scores", model=model, benchmarks=(BenchmarkChoice(name="math500"),), seed=num_pieces)


def test_evaluation_is_queued_started_and_shown_like_a_run(bench: Bench):
    run_id = bench.submit(toy_evaluation(3))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    database = open_database(None, bench.runs_root)
    row = runs.get_run(database, run_id)
    database.close()
    assert (row.status, row.name, row.kind, row.model) == ("finished", "scores", "eval", "a-model")
    assert (row.method, row.dataset) == ("evaluation", "math500")
    assert processes_of(bench.runs_root) == []


def test_evaluation_is_stopped_and_resumed_like_a_run(bench: Bench):
    run_id = bench.submit(toy_evaluation(150))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 2)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert len((bench.run_of(run_id).path / "done.txt").read_text().split()) < 150
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    assert (bench.run_of(run_id).path / "done.txt").read_text().split() == [str(i) for i in range(150)]


def test_killed_evaluation_is_lost_and_can_be_resumed(bench: Bench):
    run_id = bench.submit(toy_evaluation(150))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 2)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
