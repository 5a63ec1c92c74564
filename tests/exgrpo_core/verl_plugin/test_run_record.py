"""A record that cannot be written does not end the training that it is of."""

import pytest

from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.state import read_state
from exgrpo_core import exgrpo_step
from exgrpo_core.recording.record_file import RecordFile
from exgrpo_core.verl_plugin.run_record import RunRecord
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, new_state
from tests.records import lines_of


def verl_config(folder):
    trainer = {"default_local_dir": str(folder / "checkpoints"), "experiment_name": "e", "total_training_steps": 5}
    return {
        "trainer": trainer | {"nnodes": 1, "n_gpus_per_node": 1},
        "data": {"train_files": "questions.parquet"},
        "actor_rollout_ref": {"model": {"path": "m"}, "actor": {"optim": {"lr": 1e-6}}},
    }


@pytest.mark.parametrize("full_at", ["step", "end"])
def test_a_full_disk_ends_the_record_as_failed_and_the_training_continues(tmp_path, monkeypatch, caplog, full_at):
    config, runs = small_config(), tmp_path / "runs"
    record = RunRecord.open(runs, verl_config(tmp_path), config, is_resumed=False)
    state, engine = new_state(tmp_path, config), ToyEngine(MEDIUM_RATES)
    record.begin(state.questions, str)
    record.step(exgrpo_step(state, engine, config))
    record.settle()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordFile, "append", fail)
    record.step(exgrpo_step(state, engine, config))
    if full_at == "step":
        record.settle()
        record.step(exgrpo_step(state, engine, config))
        record.settle()
    record.end("finished")
    (run,) = list_run_directories(runs)
    assert read_state(run).status == "failed"
    assert len(caplog.records) == 1
    assert [line["step"] for line in lines_of(run.path, "step")] == [1]
