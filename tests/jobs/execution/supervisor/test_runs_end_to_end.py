import os
import signal
from contextlib import closing

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries import metrics, runs
from exgrpo.jobs.actions import branching, run_actions
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import Bench, processes_of, toy_spec, wait_until
from tests.processes import is_gone

pytestmark = pytest.mark.slow


def start(bench: Bench, spec, *statuses: RunStatus, **options) -> str:
    run_id = bench.submit(spec)
    bench.start(**options)
    bench.look_until(run_id, *statuses)
    return run_id


def shown(bench: Bench, run_id: str):
    with closing(open_database(None, bench.runs_root)) as database:
        series = metrics.metric_series(database, run_id, ["reward/mean"])["reward/mean"]
        ends = [(attempt.attempt, attempt.status) for attempt in runs.list_attempts(database, run_id)]
        return runs.get_run(database, run_id), [point.step for point in series], ends


def child_of(bench: Bench, run_id: str) -> int:
    path = bench.run_of(run_id).path / "child.pid"
    return int(path.read_text() or 0) if path.exists() else 0


def test_submitted_run_is_started_and_succeeds_and_takes_neither_stop_nor_resume(bench: Bench):
    run_id = start(bench, toy_spec(3), RunStatus.FINISHED)
    row, steps, _ = shown(bench, run_id)
    assert (row.status, row.step, row.attempt, steps) == ("finished", 3, 1, [1, 2, 3])
    assert processes_of(bench.runs_root) == []
    for action in (run_actions.stop, run_actions.resume):
        with pytest.raises(CommandError):
            action(bench.runs_root, run_id)


def test_stop_leaves_a_checkpoint_and_resume_goes_on_from_it(bench: Bench):
    run_id = start(bench, toy_spec(150), RunStatus.RUNNING)
    bench.wait_for_step(run_id, 3)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert list(bench.run_of(run_id).checkpoints_path.glob("step-*"))
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    assert shown(bench, run_id)[1:] == (list(range(1, 151)), [(1, "stopped"), (2, "finished")])


def test_failure_is_one_sentence(bench: Bench):
    told = {
        "fails": "data.source: the toy data are missing.", "crashes": "KeyError: 'toy'.", "exits": "exit code 7",
        "aborts": "memory",
    }  # fmt: skip
    failing = {tag: bench.submit(toy_spec(2, tag)) for tag in told}
    bench.start(max_running=len(told))
    for tag, run_id in failing.items():
        bench.look_until(run_id, RunStatus.FAILED)
        assert told[tag] in bench.reason_of(run_id)
        assert ("Traceback" in bench.log_of(run_id)) is (tag in {"fails", "crashes"})


def test_killed_worker_is_lost_with_its_children_and_the_run_resumes_from_its_newest_checkpoint(bench: Bench):
    run_id = start(bench, toy_spec(150, "starts-child", checkpoint_interval=5), RunStatus.RUNNING)
    bench.wait_for_step(run_id, 7)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    assert "SIGKILL" in bench.reason_of(run_id)
    assert is_gone(child_of(bench, run_id))
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    assert shown(bench, run_id)[1] == list(range(1, 151))
    wait_until(lambda: bench.supervisor.poll() or bench.supervisor.is_idle, "the supervisor to be idle")
    assert is_gone(child_of(bench, run_id))


def test_worker_that_ignores_every_wish_to_stop_is_killed_with_its_group(bench: Bench):
    spec = toy_spec(3, "starts-child", "stuck")
    run_id = start(bench, spec, RunStatus.RUNNING, grace_seconds=0.3, term_seconds=0.3)
    wait_until(lambda: child_of(bench, run_id) > 0, "the child")
    pids = bench.worker_pid(run_id), child_of(bench, run_id)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert "killed" in bench.reason_of(run_id)
    assert all(is_gone(pid) for pid in pids)


def test_branch_goes_on_from_the_checkpoint_of_another_run_and_only_from_one_that_is_there(bench: Bench):
    run_id = start(bench, toy_spec(12, checkpoint_interval=5), RunStatus.FINISHED)
    branched = branching.branch(bench.runs_root, run_id, 10)
    bench.look_until(branched, RunStatus.FINISHED)
    row, steps, _ = shown(bench, branched)
    assert (row.parent_run_id, steps) == (run_id, [11, 12])
    with pytest.raises(CommandError, match="there are: 5, 10"):
        branching.branch(bench.runs_root, run_id, 7)


def test_evaluation_is_started_stopped_resumed_and_shown_like_a_run(bench: Bench):
    spec = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="math500"),), seed=150)
    run_id = start(bench, spec, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 2)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    done = bench.run_of(run_id).path / "done.txt"
    assert len(done.read_text().split()) < 150
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    assert done.read_text().split() == [str(i) for i in range(150)]
    row, _, _ = shown(bench, run_id)
    assert (row.status, row.kind, row.model, row.method, row.dataset) == (
        "finished",
        "eval",
        "a-model",
        "evaluation",
        "math500",
    )
