from pathlib import Path

import pytest

from jobs.runs.checkpoints import checkpoint_path, save_checkpoint
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.runs.status import RunStatus
from jobs.studies.definition import Scale, load_study
from jobs.studies.matrix import RunKey
from jobs.studies.running import PendingRun, start
from tests.jobs.studies.recorded import record_run

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
    assert (Path(started.spec().model.source) / "config.json").samefile(config)


def test_reinforcement_waits_for_the_fine_tuned_run_of_its_seed(tmp_path):
    record_run(tmp_path, STUDY, RunKey("main-table", Scale.CHAINS, "sft", 1), 5)
    record_run(tmp_path, STUDY, TUNED, 5, end=RunStatus.STOPPED)
    with pytest.raises(CommandError, match="sft-rl, seed 0: starts from sft, of which no run of this seed has succ"):
        start(tmp_path, STUDY, TRAINED)
