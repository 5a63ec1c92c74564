import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exgrpo.jobs.actions.progress import describe_stop, job_progress
from exgrpo.jobs.runs.attempts import Heartbeat, read_heartbeat, write_heartbeat, write_plan
from exgrpo.jobs.runs.control import Phase
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.processes import identify
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.recording.run_status import RunStatus


def beat(run, step):
    path = run.attempt_path(run.claim_attempt())
    worker = identify(os.getpid())
    assert worker is not None
    write_heartbeat(path, Heartbeat(worker, RunStatus.RUNNING, step, datetime.now(UTC)))


@pytest.mark.parametrize(
    ("spec", "folder"),
    [
        (EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="aime24"),)), "evaluation"),
        (JudgeSpec(judged=JudgedSpec(run_id="a"), judge="oracle"), "attempts/0001"),
    ],
)
def test_an_evaluation_is_as_far_as_its_questions_and_a_judge_as_its_votes(tmp_path, spec, folder):
    run = RunDirectory.create(tmp_path, spec)
    assert job_progress(tmp_path, run.run_id) is None
    beat(run, 12)
    assert job_progress(tmp_path, run.run_id) is None
    (run.path / folder).mkdir(exist_ok=True)
    write_plan(run.path / folder, 40)
    assert job_progress(tmp_path, run.run_id) == (12, 40)
    write_plan(run.path / folder, -40)
    assert job_progress(tmp_path, run.run_id) is None


def test_a_stopping_run_says_what_it_waits_for_and_how_long_that_may_take(tmp_path):
    run = RunDirectory.create(tmp_path, load_preset("chains-exgrpo"))
    beat(run, 12)
    assert describe_stop(tmp_path, run.run_id) is None
    run.request_stop()
    assert describe_stop(tmp_path, run.run_id) == "It waits for the worker to end; after 2 min it is ended by force."
    heartbeat = read_heartbeat(run.attempt_path(1))
    seconds = {Phase.STEP: 150.0, Phase.EVALUATION: 30.0, Phase.CHECKPOINT: 300.0}
    write_heartbeat(run.attempt_path(1), replace(heartbeat, phase=Phase.STEP, phase_seconds=seconds))
    assert describe_stop(tmp_path, run.run_id) == (
        "It waits for the running step, then for a checkpoint, about 8 min by its recent times; "
        "after 16 min it is ended by force."
    )
