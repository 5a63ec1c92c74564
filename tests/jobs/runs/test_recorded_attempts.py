import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.runs.directory import CommandError, list_run_directories
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from exgrpo_core.verl_plugin.run_record import RunRecord

CONFIG = {
    "data": {"train_files": "rows.parquet"},
    "actor_rollout_ref": {"model": {"path": "someone/model"}, "actor": {"optim": {"lr": 1e-6}}},
}


def test_what_the_plug_in_records_of_a_stock_run_is_shown_and_never_stopped_from_here(tmp_path):
    trainer = {"default_local_dir": str(tmp_path / "checkpoints"), "experiment_name": "a/b", "nnodes": 1}
    config = CONFIG | {"trainer": trainer | {"n_gpus_per_node": 2, "total_training_steps": 5}}
    record = RunRecord.open(tmp_path / "runs", config, ExGRPOConfig(), is_resumed=False)
    record.begin([], str)
    (run,) = list_run_directories(tmp_path / "runs")
    assert (run.spec().name, run.spec().verl.gpus_per_node) == ("a-b", 2)
    assert read_state(run).status is RunStatus.RUNNING
    with pytest.raises(CommandError):
        run_actions.stop(tmp_path / "runs", run.run_id)
    record.step(StepReport(1, is_replay_open=False, groups=[]))
    record.end("failed", "It broke.")
    assert (read_state(run).status, read_state(run).reason) == (RunStatus.FAILED, "It broke.")
    again = RunRecord.open(tmp_path / "runs", config, ExGRPOConfig(), is_resumed=True)
    assert (run.attempts(), read_state(run).status) == ([1, 2], RunStatus.RUNNING)
    again._attempt.release()  # as a killed process does
    assert read_state(run).status is RunStatus.STOPPED
