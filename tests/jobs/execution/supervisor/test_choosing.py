import psutil
import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.queueing import write_job
from exgrpo.jobs.execution.supervisor import loop
from exgrpo.jobs.machine.hardware import VISIBLE_VARIABLE, Gpu
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError
from exgrpo.jobs.specs.verl import VerlSpec
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import Bench, toy_spec

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


def test_a_job_that_is_not_there_cannot_be_waited_for(bench: Bench):
    with pytest.raises(SpecError, match="waits_for"):
        bench.submit(waiting_spec("nothing"))


def verl_job(bench: Bench, num_gpus: int, num_steps: int = 500) -> str:
    verl = {"gpus_per_node": num_gpus}
    spec = toy_spec(num_steps).model_copy(update={"engine": "verl", "verl": VerlSpec(**verl)})
    return write_job(bench.runs_root, spec)


def gpus_of(bench: Bench, run_id: str) -> set[str]:
    environment = psutil.Process(bench.worker_pid(run_id)).environ()
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    return set(environment[VISIBLE_VARIABLE].split(","))


def test_runs_get_gpus_for_themselves_in_the_order_of_requests_also_from_the_next_supervisor(bench: Bench, monkeypatch):
    gpus = [Gpu(index, "H100", 0.0, 100 if index == 0 else 0, 100) for index in range(4)]
    monkeypatch.setattr(loop, "list_gpus", lambda: gpus)
    first, embedded = verl_job(bench, 2), bench.submit(toy_spec(500))
    large, small = verl_job(bench, 3), verl_job(bench, 1, num_steps=2)
    on_cpu = bench.submit(apply_settings(toy_spec(2), ["model.device=cpu"]))
    bench.start(max_running=9)
    bench.look_until(on_cpu, RunStatus.FINISHED)
    bench.look_until(first, RunStatus.RUNNING)
    bench.look_until(embedded, RunStatus.RUNNING)
    assert (gpus_of(bench, first), gpus_of(bench, embedded)) == ({"1", "2"}, {"3"})
    # The fourth would fit, but the third would then wait for ever.
    assert {bench.status_of(large), bench.status_of(small)} == {RunStatus.QUEUED}
    bench.supervisor.close()
    bench.start(max_running=9)
    run_actions.stop(bench.runs_root, embedded)
    bench.look_until(embedded, RunStatus.STOPPED)
    assert bench.status_of(large) is RunStatus.QUEUED
    run_actions.stop(bench.runs_root, first)
    bench.look_until(large, RunStatus.RUNNING)
    assert len(gpus_of(bench, large)) == 3
    bench.look_until(small, RunStatus.FINISHED)
    run_actions.stop(bench.runs_root, large)
    bench.look_until(large, RunStatus.STOPPED)


def test_gpus_are_asked_for_once_a_poll_and_a_run_waits_while_some_do_not_answer(bench: Bench, monkeypatch):
    answers = []

    def list_gpus():
        answers.append(gpus)
        return gpus

    monkeypatch.setattr(loop, "list_gpus", list_gpus)
    gpus = present = [Gpu(0, "H100", 0.0, 0, 100)]
    first, second, third = verl_job(bench, 1), verl_job(bench, 1), verl_job(bench, 1)
    supervisor = bench.start(max_running=9)
    supervisor.poll()
    (bench.run_of(second).path / "spec.json").rename(bench.run_of(second).path / "away")
    gpus = []
    supervisor.poll()
    gpus = present
    supervisor.poll()
    assert answers == [present, [], present]
    bench.look_until(first, RunStatus.RUNNING)
    assert [bench.status_of(run_id) for run_id in (second, third)] == [RunStatus.QUEUED] * 2
    for run_id in (third, second, first):
        run_actions.stop(bench.runs_root, run_id)
        bench.look_until(run_id, RunStatus.STOPPED)
