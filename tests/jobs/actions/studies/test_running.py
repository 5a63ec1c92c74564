from types import SimpleNamespace

import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study
from exgrpo.jobs.actions.studies.running import PendingRun, start, stop_all
from exgrpo.jobs.runs.checkpoints import checkpoint_path, kept_start, save_checkpoint
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, list_run_directories
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.actions.studies.recorded import record_run

pytestmark = pytest.mark.slow

STUDY = load_study("main-table")
TUNED = RunKey("main-table", Scale.CHAINS, "sft", 0)
TRAINED = PendingRun(RunKey("main-table", Scale.CHAINS, "sft-rl", 0), None)


def write_policy(checkpoint):
    checkpoint.policy.mkdir()
    (checkpoint.policy / "config.json").write_text("{}")


def test_reinforcement_after_fine_tuning_starts_from_the_last_checkpoint_of_the_same_seed(tmp_path):
    run_id = record_run(tmp_path, STUDY, TUNED, 5)
    tuned = RunDirectory.open(tmp_path, run_id)
    save_checkpoint(tuned.checkpoints_path, 60, write_policy)
    started = RunDirectory.open(tmp_path, start(tmp_path, STUDY, TRAINED))
    assert started.spec().sft is None
    config = checkpoint_path(tuned.checkpoints_path, 60) / "policy" / "config.json"
    assert (kept_start(started, started.spec().model.source) / "config.json").samefile(config)


def test_reinforcement_waits_for_the_fine_tuned_run_of_its_seed_while_that_is_under_way(tmp_path):
    run_id = start(tmp_path, STUDY, PendingRun(TUNED, None))
    spec = RunDirectory.open(tmp_path, start(tmp_path, STUDY, TRAINED)).spec()
    assert (spec.waits_for, spec.model.source) == (run_id, f"{run_id}@last")


def test_reinforcement_needs_a_fine_tuned_run_of_its_seed(tmp_path):
    record_run(tmp_path, STUDY, RunKey("main-table", Scale.CHAINS, "sft", 1), 5)
    record_run(tmp_path, STUDY, TUNED, 5, end=RunStatus.STOPPED)
    with pytest.raises(CommandError):
        start(tmp_path, STUDY, TRAINED)


def test_runs_at_the_papers_scale_are_followed_by_their_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "exgrpo.jobs.actions.preflight.machine_fit.shutil.disk_usage", lambda _: SimpleNamespace(free=10**13)
    )
    key = RunKey("main-table", Scale.PAPER, "exgrpo", 0)
    run_id = start(tmp_path, STUDY, PendingRun(key, None), ["verl.ray.address=http://127.0.0.1:8265"])
    (scores,) = [run for run in list_run_directories(tmp_path) if run.run_id != run_id]
    spec = scores.job_spec()
    assert isinstance(spec, EvalSpec)
    assert (spec.waits_for, spec.model.step, spec.generator, len(spec.benchmarks)) == (run_id, 700, "vllm", 9)
    assert spec.tags == key.tags
    stop, stopped = run_actions.stop, []
    monkeypatch.setattr(
        run_actions, "stop", lambda root, stopped_id: stopped.append(stopped_id) or stop(root, stopped_id)
    )
    assert stop_all(tmp_path, STUDY, Scale.CHAINS) == 0
    assert stop_all(tmp_path, STUDY, Scale.PAPER) == 2
    assert stop_all(tmp_path, STUDY, Scale.PAPER) == 0
    assert stopped == [scores.run_id, run_id]
