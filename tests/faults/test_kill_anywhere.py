"""kill -9 at random moments of a real run of the embedded engine: resumed, it ends as if nothing had happened."""

import os
import random
import signal
import time

import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.branching import branch, branch_spec
from exgrpo.jobs.execution.supervisor.loop import Supervisor
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, TrainSpec, ValidationSpec
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.recording.run_status import RunStatus
from tests.faults import recorded
from tests.jobs.conftest import opened_bench
from tests.jobs.execution.supervisor.toy_bench import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

NUM_KILLS = {False: 2, True: 20}
NUM_STEPS = {False: 24, True: 48}


@pytest.fixture(scope="module")
def spec(tmp_path_factory, is_long):
    from exgrpo.jobs.training.warm_start import WarmStartSettings, warm_model

    settings = WarmStartSettings(
        num_layers=1, width=32, num_heads=2, num_steps=120, batch_size=16, max_operations=3, error_scale=0.5
    )
    sizes = {"batch_size": 4, "mini_batch_size": 2, "rollouts_per_question": 4}
    lengths = {"max_prompt_tokens": 64, "max_response_tokens": 48}
    return TrainSpec(
        name="small",
        model=ModelSpec(source=str(warm_model(settings, tmp_path_factory.mktemp("cache"))), device="cpu"),
        data=DataSpec(num_questions=16, num_held_out=4, min_operations=1, max_operations=3),
        algorithm=ExGRPOConfig(**sizes, **lengths, start_pass_rate=None),
        validation=ValidationSpec(interval=None, samples_per_question=2, num_training_questions=4),
        num_steps=NUM_STEPS[is_long],
        checkpoint_interval=3,
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A bench whose workers train."""
    with opened_bench(tmp_path_factory.mktemp("runs")) as bench:
        bench.supervisor = Supervisor(bench.runs_root)
        yield bench


@pytest.fixture(scope="module")
def whole(real, spec):
    """The run that was left alone."""
    return finish(real, real.submit(spec))


def finish(bench, run_id):
    """Look at a run step by step: all together may last longer than is waited for anything."""
    run = bench.run_of(run_id)
    while bench.status_of(run_id) not in {RunStatus.FINISHED, RunStatus.FAILED}:
        bench.poll()
        time.sleep(0.05)
    assert bench.status_of(run_id) is RunStatus.FINISHED, bench.supervisor.state_of(run_id).reason
    return run


def kill_at_a_random_moment(bench, run_id, rng):
    """Kill the worker while it starts, or inside a step, or while it writes a checkpoint."""
    bench.look_until(run_id, RunStatus.RUNNING)
    worker = bench.worker_pid(run_id)
    if rng.random() < 0.15:
        time.sleep(rng.uniform(0.0, 1.0))
    else:
        wait_until(lambda: bench.step_of(run_id) > 0, "a step")
        bench.wait_for_step(run_id, bench.step_of(run_id) + rng.choice([0, 1, 2, 3]))
        time.sleep(rng.uniform(0.0, 0.15))
    os.kill(worker, signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)


def test_run_killed_at_random_moments_ends_as_the_uninterrupted_one(real, spec, whole, is_long):
    run_id, rng = real.submit(spec), random.Random(7)
    for _ in range(NUM_KILLS[is_long]):
        kill_at_a_random_moment(real, run_id, rng)
        run_actions.resume(real.runs_root, run_id)
    killed = finish(real, run_id)
    assert killed.newest_attempt() == NUM_KILLS[is_long] + 1
    real.index.catch_up()
    losses, draws = recorded.losses(real.runs_root, run_id), recorded.draws(real.runs_root, run_id, spec.num_steps)
    assert len(losses["loss/total"]) == spec.num_steps
    assert sum(value for _, value in losses["replay/num_replayed"]) > 0
    assert losses == recorded.losses(real.runs_root, whole.run_id)
    assert draws == recorded.draws(real.runs_root, whole.run_id, spec.num_steps)
    assert {"model.safetensors", "optimizer.safetensors"} <= recorded.policy_files(whole, spec.num_steps).keys()
    assert recorded.buffer_content(whole, spec.num_steps)
    recorded.assert_same_end(killed, whole)


def test_branch_ends_as_its_parent_and_a_longer_one_continues(real, whole):
    last = whole.spec().num_steps
    branched = finish(real, branch(real.runs_root, whole.run_id, last - 6))
    recorded.assert_same_end(branched, whole)
    wanted = branch_spec(real.runs_root, whole.run_id, last).model_copy(update={"num_steps": last + 2})
    longer = finish(real, branch(real.runs_root, whole.run_id, last, wanted))
    real.index.catch_up()
    steps = [step for step, _ in recorded.losses(real.runs_root, longer.run_id)["loss/total"]]
    assert steps == [last + 1, last + 2]
