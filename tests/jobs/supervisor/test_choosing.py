import pytest

from jobs.actions import run_actions
from jobs.runs.attempts import read_outcome
from jobs.runs.control import RunStatus
from jobs.specs.train import SpecError
from tests.jobs.supervisor.toy_bench import Bench, toy_spec

pytestmark = pytest.mark.slow


def waiting_spec(run_id, num_steps=2):
    return toy_spec(num_steps, name="second").model_copy(update={"waits_for": run_id})


def test_waiting_run_starts_once_the_other_has_finished_and_holds_up_no_third(bench: Bench):
    first = bench.submit(toy_spec(60))
    second, third = bench.submit(waiting_spec(first)), bench.submit(toy_spec(2, name="third"))
    bench.start(max_running=2)
    bench.look_until(third, RunStatus.FINISHED)
    assert bench.status_of(second) is RunStatus.QUEUED
    bench.look_until(second, RunStatus.FINISHED)
    ends = [read_outcome(bench.run_of(run_id).attempt_path(1)).at for run_id in (first, second)]
    assert ends == sorted(ends)


def test_waiting_run_fails_with_the_reason_of_the_one_that_failed_and_waits_again_once_both_are_resumed(bench: Bench):
    first = bench.submit(toy_spec(3, "fails"))
    second = bench.submit(waiting_spec(first))
    bench.start()
    bench.look_until(second, RunStatus.FAILED)
    assert "data.source: the toy data are missing." in bench.reason_of(second)
    run_actions.resume(bench.runs_root, second)
    run_actions.resume(bench.runs_root, first)
    bench.look_until(second, RunStatus.FAILED)
    assert bench.run_of(second).newest_attempt() == 2


def test_stop_in_the_queue_ends_a_waiting_run(bench: Bench):
    first = bench.submit(toy_spec(500))
    second = bench.submit(waiting_spec(first))
    bench.start()
    bench.look_until(first, RunStatus.RUNNING)
    run_actions.stop(bench.runs_root, second)
    bench.look_until(second, RunStatus.STOPPED)


def test_a_job_that_is_not_there_cannot_be_waited_for(bench: Bench):
    with pytest.raises(SpecError, match="waits_for"):
        bench.submit(waiting_spec("nothing"))
