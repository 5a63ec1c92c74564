import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from exgrpo.jobs.runs.checkpoints import describe_resume, list_steps
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo_core.config import RetiredRule
from exgrpo_core.recording.run_status import RunStatus
from tests.faults import recorded
from tests.faults.small_training import EightNumbers, StepControl, small_spec, train
from tests.jobs.training.killed_runs import KilledError, killed_run, killing_at

pytestmark = pytest.mark.slow


def open_files(folder):
    opened = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(path))
    return [path for path in opened if path.startswith(str(folder))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists a process's open files")
def test_a_run_leaves_no_file_of_its_buffer_open_however_it_ends(tmp_path):
    run = RunDirectory.create(tmp_path, small_spec(4, 2))
    train(run)
    assert open_files(run.path) == []
    engine = EightNumbers()
    engine.update = None
    broken = RunDirectory.create(tmp_path, small_spec(4, 2))
    with pytest.raises(TypeError, match="not callable"):
        train(broken, engine=engine)
    assert open_files(broken.path) == []


def events_of(run: RunDirectory, attempt: int) -> list[dict[str, Any]]:
    return [event for event in iterate_events(run, "step") if event["attempt"] == attempt]


def changes(events, kind) -> list[dict[str, Any]]:
    return [change for event in events for change in event["buffer_events"] if change["kind"] == kind]


def test_a_killed_run_says_where_it_resumes_and_ends_as_if_never_killed(tmp_path):
    whole = RunDirectory.create(tmp_path / "whole", small_spec(9, 4))
    train(whole)
    run = killed_run(tmp_path, 7)
    assert describe_resume(run) == "Resumes from step 4."
    assert train(run) is RunStatus.FINISHED
    assert [event["step"] for event in events_of(run, 2)] == [5, 6, 7, 8, 9]
    assert recorded.buffer_content(run, 9) == recorded.buffer_content(whole, 9)
    assert recorded.experience_state(run, 9) == recorded.experience_state(whole, 9)


def test_a_run_ends_with_the_step_that_reaches_its_generated_tokens_also_after_a_stop(tmp_path):
    whole = RunDirectory.create(tmp_path / "whole", small_spec(9, 4))
    train(whole)
    lengths = [event["metrics"]["tokens/generated"] for event in events_of(whole, 1)]
    budget = int(sum(lengths[:5])) - 1
    spec = small_spec(9, 4).model_copy(update={"max_generated_tokens": budget})
    run = RunDirectory.create(tmp_path / "limited", spec)
    assert train(run, StepControl(stop_at=2)) is RunStatus.STOPPED
    assert train(run) is RunStatus.FINISHED
    assert [event["step"] for event in events_of(run, 2)] == [3, 4, 5]
    scored = {event["step"] for event in iterate_events(run, "evaluation") if event["question_set"] == "training"}
    assert (scored, list_steps(run.checkpoints_path)[-1]) == ({0, 5}, 5)
    assert train(run) is RunStatus.FINISHED
    assert not events_of(run, 3)


def test_a_limited_buffer_has_few_files_in_a_run_of_any_length_and_resumes_bit_for_bit(tmp_path):
    def limited(name, num_steps):
        spec = small_spec(num_steps, 2, 2)
        algorithm = dataclasses.replace(spec.algorithm, buffer_capacity=12, buffer_age=4, retired=RetiredRule.NEVER)
        return RunDirectory.create(tmp_path / name, spec.model_copy(update={"algorithm": algorithm}))

    short, whole, run = limited("short", 15), limited("whole", 45), limited("killed", 45)
    train(short)
    train(whole)
    with pytest.raises(KilledError):
        train(run, killing_at(20))
    assert train(run) is RunStatus.FINISHED
    assert recorded.experience_state(run, 45) == recorded.experience_state(whole, 45)
    assert recorded.buffer_content(run, 45) == recorded.buffer_content(whole, 45)
    assert changes(events_of(whole, 1), "evicted")
    num_files = [len(list(one.buffer_path.iterdir())) for one in (short, whole)]
    assert num_files[1] <= num_files[0] + 2
