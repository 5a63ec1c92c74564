import os
import signal

import pytest

from db.connections.opening import open_database
from db.queries import metrics, runs
from jobs.actions import run_actions
from jobs.runs.attempts import read_outcome
from jobs.runs.control import RunStatus
from jobs.runs.lookup import CommandError
from tests.jobs.supervisor.toy_bench import Bench, processes_of, toy_spec, wait_until
from tests.processes import is_gone

pytestmark = pytest.mark.slow


def test_submitted_run_is_started_and_succeeds(bench: Bench):
    run_id = bench.submit(toy_spec(3))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    database = open_database(None, bench.runs_root)
    row = runs.get_run(database, run_id)
    series = metrics.metric_series(database, run_id, ["reward/pass_at_1"])["reward/pass_at_1"]
    database.close()
    assert (row.status, row.step, row.attempt) == ("finished", 3, 1)
    assert [point.step for point in series] == [1, 2, 3]
    assert processes_of(bench.runs_root) == []


def test_second_run_waits_until_the_first_has_ended(bench: Bench):
    first, second = bench.submit(toy_spec(100)), bench.submit(toy_spec(2))
    bench.start()
    bench.look_until(first, RunStatus.RUNNING)
    assert bench.supervisor.state_of(second).status is RunStatus.QUEUED
    bench.look_until(second, RunStatus.FINISHED)
    assert read_outcome(bench.run_of(first).attempt_path(1)).at < read_outcome(bench.run_of(second).attempt_path(1)).at


def test_two_runs_run_at_once_where_there_is_room(bench: Bench):
    first, second = bench.submit(toy_spec(500)), bench.submit(toy_spec(500))
    bench.start(max_running=2)
    bench.look_until(first, RunStatus.RUNNING)
    bench.look_until(second, RunStatus.RUNNING)
    assert bench.supervisor.state_of(first).status is RunStatus.RUNNING


def test_stop_leaves_a_checkpoint_and_resume_goes_on_from_it(bench: Bench):
    run_id = bench.submit(toy_spec(150))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 3)
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert list(bench.run_of(run_id).checkpoints_path.glob("step-*"))
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    database = open_database(None, bench.runs_root)
    series = metrics.metric_series(database, run_id, ["reward/mean"])["reward/mean"]
    attempts = runs.list_attempts(database, run_id)
    database.close()
    assert [point.step for point in series] == list(range(1, 151))
    assert [(attempt.attempt, attempt.status) for attempt in attempts] == [(1, "stopped"), (2, "finished")]


def test_run_stopped_in_the_queue_never_starts_and_can_be_resumed(bench: Bench):
    run_id = bench.submit(toy_spec(2))
    run_actions.stop(bench.runs_root, run_id)
    bench.start()
    bench.look_until(run_id, RunStatus.STOPPED)
    assert bench.run_of(run_id).attempts() == []
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)


def test_failure_is_one_sentence_and_its_traceback_is_in_the_log(bench: Bench):
    run_id = bench.submit(toy_spec(2, "fails"))
    bench.start()
    bench.look_until(run_id, RunStatus.FAILED)
    assert bench.supervisor.state_of(run_id).reason == "data.source: the toy data are missing."
    assert "Traceback" in bench.run_of(run_id).log_path.read_text()


def test_unexpected_failure_names_its_kind(bench: Bench):
    run_id = bench.submit(toy_spec(2, "crashes"))
    bench.start()
    bench.look_until(run_id, RunStatus.FAILED)
    assert bench.supervisor.state_of(run_id).reason.startswith("KeyError: 'toy'.")


def test_worker_that_leaves_without_a_word_has_failed_with_its_exit_code(bench: Bench):
    run_id = bench.submit(toy_spec(2, "exits"))
    bench.start()
    bench.look_until(run_id, RunStatus.FAILED)
    assert "exit code 7" in bench.supervisor.state_of(run_id).reason


def test_killed_worker_is_lost_and_resumes_from_its_newest_checkpoint(bench: Bench):
    run_id = bench.submit(toy_spec(150, checkpoint_interval=5))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 7)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    assert "SIGKILL" in bench.supervisor.state_of(run_id).reason
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    database = open_database(None, bench.runs_root)
    series = metrics.metric_series(database, run_id, ["reward/mean"])["reward/mean"]
    database.close()
    assert [point.step for point in series] == list(range(1, 151))


def test_children_of_a_killed_worker_are_ended(bench: Bench):
    run_id = bench.submit(toy_spec(500, "starts-child"))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 1)
    child = int((bench.run_of(run_id).path / "child.pid").read_text())
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    assert is_gone(child)


def test_children_of_a_worker_that_ended_well_are_ended_too(bench: Bench):
    run_id = bench.submit(toy_spec(3, "starts-child"))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    wait_until(lambda: bench.supervisor.poll() or bench.supervisor.is_idle, "the supervisor to be idle")
    child = int((bench.run_of(run_id).path / "child.pid").read_text())
    assert is_gone(child)


def test_worker_that_ignores_every_wish_to_stop_is_killed_with_its_group(bench: Bench):
    run_id = bench.submit(toy_spec(3, "starts-child", "stuck"))
    bench.start(grace_seconds=0.3, term_seconds=0.3)
    bench.look_until(run_id, RunStatus.RUNNING)
    wait_until(lambda: (bench.run_of(run_id).path / "child.pid").exists(), "the child")
    pid, child = bench.worker_pid(run_id), int((bench.run_of(run_id).path / "child.pid").read_text())
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert "killed" in bench.supervisor.state_of(run_id).reason
    for number in (pid, child):
        assert is_gone(number)


@pytest.mark.parametrize(
    ("action", "reason"), [(run_actions.stop, "already finished"), (run_actions.resume, "it is finished")]
)
def test_ended_run_takes_neither_stop_nor_resume(bench: Bench, action, reason):
    run_id = bench.submit(toy_spec(1))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    with pytest.raises(CommandError, match=reason):
        action(bench.runs_root, run_id)


def test_branch_goes_on_from_the_checkpoint_of_another_run(bench: Bench):
    run_id = bench.submit(toy_spec(12, checkpoint_interval=5))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    branched = run_actions.branch(bench.runs_root, run_id, 10)
    bench.look_until(branched, RunStatus.FINISHED)
    database = open_database(None, bench.runs_root)
    row = runs.get_run(database, branched)
    series = metrics.metric_series(database, branched, ["reward/mean"])["reward/mean"]
    database.close()
    assert row.parent_run_id == run_id
    assert [point.step for point in series] == [11, 12]


def test_branch_at_a_step_without_a_checkpoint_names_those_there_are(bench: Bench):
    run_id = bench.submit(toy_spec(12, checkpoint_interval=5))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    with pytest.raises(CommandError, match="no checkpoint at step 7; there are: 5, 10"):
        run_actions.branch(bench.runs_root, run_id, 7)
