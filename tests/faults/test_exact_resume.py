"""Row 2: stopped and resumed at every step, over ends of epochs, a run ends as the one that was left alone."""

import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.recording.run_status import RunStatus
from tests.faults import recorded
from tests.faults.small_training import NUM_QUESTIONS, StepControl, small_spec, train
from tests.jobs.training.killed_runs import KilledError, killing_at

pytestmark = pytest.mark.fault_row(2)

LONG_STEPS, SHORT_STEPS = 24, 10


@pytest.fixture(scope="module")
def spec(is_long):
    return small_spec(LONG_STEPS if is_long else SHORT_STEPS, checkpoint_interval=5)


@pytest.fixture(scope="module")
def whole(spec, tmp_path_factory):
    run = RunDirectory.create(tmp_path_factory.mktemp("whole"), spec)
    assert train(run) is RunStatus.FINISHED
    return run


def kept_steps(run):
    """Return what was recorded of each step by the attempt that did it last: losses, draws, trajectories, replays."""
    names = (
        "metrics", "buckets", "selections", "buffer_events", "trajectories", "replays", "is_replay_open", "notices",
    )  # fmt: skip
    found = {}
    for event in EventReader(run).read(max_steps=100_000).events:
        if event["kind"] == "step":
            metrics = {
                key: value for key, value in event["metrics"].items() if not key.startswith(("seconds/", "system/"))
            }
            found[event["step"]] = {name: event[name] for name in names} | {"metrics": metrics}
    return found


def scores(run):
    events = EventReader(run).read(max_steps=100_000).events
    found = [event for event in events if event["kind"] == "evaluation"]
    return {(event["step"], event["question_set"]): event["num_correct"] for event in found}


def assert_same(run, whole):
    num_steps = whole.spec().num_steps
    assert repr(kept_steps(run)) == repr(kept_steps(whole))  # as texts, since NaN differs from itself
    assert [*kept_steps(run)] == list(range(1, num_steps + 1))
    assert scores(run) == scores(whole)
    recorded.assert_same_end(run, whole)


def test_the_run_crosses_ends_of_epochs_and_replays(whole):
    state = recorded.experience_state(whole, whole.spec().num_steps)
    assert state["stream"]["epoch"] >= 2
    assert sum(len(step["replays"]) for step in kept_steps(whole).values()) > whole.spec().num_steps
    assert NUM_QUESTIONS % whole.spec().algorithm.batch_size


def ends(spec, is_long):
    """Return the steps after which an attempt ends: all, the one before the first included, or some."""
    return [*range(spec.num_steps + 1)] if is_long else [0, spec.num_steps - 1, spec.num_steps]


def end_at(run, step, way):
    """End an attempt after a step by a stop, which comes too late with the last step, or without a word."""
    if way == "stopped":
        is_last = step == run.spec().num_steps
        assert train(run, StepControl(stop_at=step)) is (RunStatus.FINISHED if is_last else RunStatus.STOPPED)
    else:
        with pytest.raises(KilledError):
            train(run, killing_at(step))


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_ended_after_any_step_and_resumed_the_run_ends_the_same(whole, spec, tmp_path, is_long, figure, way):
    steps = ends(spec, is_long)
    for step in steps:
        run = RunDirectory.create(tmp_path / str(step), spec)
        end_at(run, step, way)
        if way == "stopped":
            assert len(kept_steps(run)) == step
        assert train(run) is RunStatus.FINISHED
        assert_same(run, whole)
    figure(f"steps at which a {way} run resumed to the same end", f"{len(steps)} of {len(steps)}")


def test_stopped_after_every_single_step_the_run_ends_the_same(whole, spec, tmp_path, figure):
    run = RunDirectory.create(tmp_path, spec)
    for step in range(spec.num_steps):
        assert train(run, StepControl(stop_at=step)) is RunStatus.STOPPED
        assert len(kept_steps(run)) == step
    assert train(run) is RunStatus.FINISHED
    assert run.newest_attempt() == spec.num_steps + 1
    assert_same(run, whole)
    figure("attempts of a run that was stopped after every step", f"{run.newest_attempt()}, the same end")


def test_a_finished_run_that_is_run_again_does_nothing_again(whole, spec, tmp_path):
    run = RunDirectory.create(tmp_path, spec)
    train(run)
    before = kept_steps(run)
    assert train(run) is RunStatus.FINISHED
    assert repr(kept_steps(run)) == repr(before)
    assert_same(run, whole)
