"""kill -9 at random moments of a real run of the embedded engine: resumed, it ends as if nothing had happened."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exgrpo_core.config import ExGRPOConfig
from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.runs import lookup
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.state import RunState, read_state
from jobs.specs.train import DataSpec, ModelSpec, TrainSpec, ValidationSpec
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.loop import Supervisor
from tests.faults import recorded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

NUM_KILLS = {False: 3, True: 20}
NUM_STEPS = 48
TIMEOUT_SECONDS = 400.0


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    from jobs.training.warm_start import WarmStartSettings, warm_model

    settings = WarmStartSettings(
        num_layers=1, width=32, num_heads=2, num_steps=120, batch_size=16, max_operations=3, error_scale=0.5
    )
    model = warm_model(settings, tmp_path_factory.mktemp("cache"))
    return TrainSpec(
        name="small",
        model=ModelSpec(source=str(model), device="cpu"),
        data=DataSpec(num_questions=16, num_held_out=4, min_operations=1, max_operations=3),
        algorithm=ExGRPOConfig(
            batch_size=4,
            mini_batch_size=2,
            rollouts_per_question=4,
            max_prompt_tokens=64,
            max_response_tokens=48,
            start_pass_rate=None,
        ),
        validation=ValidationSpec(interval=None, samples_per_question=2, num_training_questions=4),
        num_steps=NUM_STEPS,
        checkpoint_interval=3,
    )


class Driver:
    """A supervisor that is driven look by look, with real workers."""

    def __init__(self, runs_root: Path) -> None:
        self.runs_root = runs_root
        self._supervisor = Supervisor(runs_root, DatabaseIndex(None, runs_root))

    def close(self) -> None:
        self._supervisor.close()

    def poll(self, run_id: str) -> RunState | None:
        self._supervisor.poll()
        return self._supervisor.state_of(run_id)

    def look_until(self, run_id: str, *statuses: RunStatus) -> RunState:
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while True:
            state = self.poll(run_id)
            if state is not None and state.status in statuses:
                return state
            assert time.monotonic() < give_up_at, f"waited in vain for {statuses}: {state}"
            time.sleep(0.05)

    def finish(self, spec: TrainSpec) -> RunDirectory:
        run = RunDirectory.open(self.runs_root, queue_job(self.runs_root, spec))
        state = self.look_until(run.run_id, RunStatus.FINISHED, RunStatus.FAILED)
        assert state.status is RunStatus.FINISHED, state.reason
        return run


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "runs")
    yield driver
    driver.close()


def kill_at_a_random_moment(driver: Driver, run: RunDirectory, rng: random.Random) -> RunState:
    """Kill the worker while it starts, or inside a step, or while it writes a checkpoint; return the run's state."""
    state = driver.look_until(run.run_id, RunStatus.RUNNING, RunStatus.FINISHED)
    assert state.heartbeat is not None, "the run ended before its last kill"
    worker, base = state.heartbeat.worker.pid, None
    if rng.random() < 0.15:
        time.sleep(rng.uniform(0.0, 1.0))
    else:
        num_steps = rng.choice([0, 1, 2, 3])
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while True:
            beat = read_state(run).heartbeat
            assert beat is not None
            base = beat.step if base is None and beat.step > 0 else base
            if base is not None and beat.step >= base + num_steps:
                break
            assert time.monotonic() < give_up_at, "the worker takes no step"
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.15))
    os.kill(worker, signal.SIGKILL)
    return driver.look_until(run.run_id, RunStatus.LOST, RunStatus.FINISHED)


def test_run_killed_at_random_moments_ends_as_the_uninterrupted_one(driver: Driver, spec: TrainSpec, is_long: bool):
    whole = driver.finish(spec)
    run_id = queue_job(driver.runs_root, spec)
    killed = RunDirectory.open(driver.runs_root, run_id)
    rng = random.Random(7)
    for _ in range(NUM_KILLS[is_long]):
        assert kill_at_a_random_moment(driver, killed, rng).status is RunStatus.LOST
        run_actions.resume(driver.runs_root, run_id)
    state = driver.look_until(run_id, RunStatus.FINISHED, RunStatus.FAILED)
    assert state.status is RunStatus.FINISHED, state.reason
    assert killed.newest_attempt() == NUM_KILLS[is_long] + 1
    assert_same_end(driver.runs_root, whole, killed)
    assert sum(value for _, value in recorded.losses(driver.runs_root, run_id)["replay/num_replayed"]) > 0


@pytest.fixture(scope="module")
def short(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, RunDirectory]]:
    """A driver and an uninterrupted run of twelve steps, which the tests below compare others with."""
    driver = Driver(tmp_path_factory.mktemp("short") / "runs")
    yield driver, driver.finish(spec.model_copy(update={"num_steps": 12}))
    driver.close()


def test_run_that_was_stopped_and_resumed_ends_as_the_uninterrupted_one(short: tuple[Driver, RunDirectory]):
    driver, whole = short
    spec = whole.spec()
    run_id = queue_job(driver.runs_root, spec)
    driver.look_until(run_id, RunStatus.RUNNING)
    run_actions.stop(driver.runs_root, run_id)
    driver.look_until(run_id, RunStatus.STOPPED)
    run_actions.resume(driver.runs_root, run_id)
    driver.look_until(run_id, RunStatus.FINISHED)
    assert_same_end(driver.runs_root, whole, RunDirectory.open(driver.runs_root, run_id))


def test_branch_with_the_same_specification_ends_as_its_parent(short: tuple[Driver, RunDirectory]):
    driver, parent = short
    branched = RunDirectory.open(driver.runs_root, run_actions.branch(driver.runs_root, parent.run_id, 6))
    driver.look_until(branched.run_id, RunStatus.FINISHED, RunStatus.FAILED)
    assert recorded.policy_files(branched, 12) == recorded.policy_files(parent, 12)
    assert recorded.buffer_content(branched, 12) == recorded.buffer_content(parent, 12)
    assert recorded.experience_state(branched, 12) == recorded.experience_state(parent, 12)


def assert_same_end(runs_root: Path, whole: RunDirectory, other: RunDirectory) -> None:
    num_steps = whole.spec().num_steps
    assert len(recorded.losses(runs_root, whole.run_id)["loss/total"]) == num_steps
    assert {"model.safetensors", "optimizer.safetensors"} <= recorded.policy_files(whole, num_steps).keys()
    assert recorded.losses(runs_root, other.run_id) == recorded.losses(runs_root, whole.run_id)
    assert recorded.draws(runs_root, other.run_id, num_steps) == recorded.draws(runs_root, whole.run_id, num_steps)
    assert recorded.policy_files(other, num_steps) == recorded.policy_files(whole, num_steps)
    assert recorded.experience_state(other, num_steps) == recorded.experience_state(whole, num_steps)
    content = recorded.buffer_content(whole, num_steps)
    assert content
    assert recorded.buffer_content(other, num_steps) == content


def test_branch_without_a_step_left_is_refused_and_a_longer_one_continues(short: tuple[Driver, RunDirectory]):
    driver, parent = short
    with pytest.raises(lookup.CommandError, match="expected more than 12"):
        run_actions.branch(driver.runs_root, parent.run_id, 12)
    longer = RunDirectory.open(driver.runs_root, run_actions.branch(driver.runs_root, parent.run_id, 12, num_steps=14))
    assert driver.look_until(longer.run_id, RunStatus.FINISHED, RunStatus.FAILED).status is RunStatus.FINISHED
    assert [step for step, _ in recorded.losses(driver.runs_root, longer.run_id)["loss/total"]] == [13, 14]
