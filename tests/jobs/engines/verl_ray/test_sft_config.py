"""Settings of verl's SFT trainer, checked against verl's own configuration."""

from pathlib import Path

import pytest

from jobs.engines.verl_ray.sft_overrides import SFT_CONFIG, check_sft_overrides, sft_run_overrides
from jobs.specs.settings import apply_settings
from jobs.specs.train import load_preset

config_check = pytest.importorskip("jobs.engines.verl_ray.config_check", reason="needs the verl environment")
pytestmark = pytest.mark.verl

RUN = Path("/runs/20260101-a run")


def check(words):
    return config_check.check(words, SFT_CONFIG)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_every_setting_of_the_preset_is_one_that_verls_sft_trainer_knows(device):
    spec = apply_settings(load_preset("paper-sft"), ["engine=verl", f"model.device={device}"])
    found = check(sft_run_overrides(spec, RUN, resume_path=RUN / "resume" / "global_step_700"))
    assert found["problems"] == []
    config = found["config"]
    assert config["data"]["train_files"] == [f"{RUN}/verl/demonstrations.parquet"]
    assert (config["optim"]["lr"], config["optim"]["lr_warmup_steps"]) == (5e-5, 100)
    assert (config["trainer"]["total_training_steps"], config["data"]["train_batch_size"]) == (2100, 64)
    assert "hf_model" in config["checkpoint"]["save_contents"]


def test_own_setting_reaches_the_trainer_and_an_unknown_one_is_named():
    spec = apply_settings(load_preset("paper-sft"), ["engine=verl", "verl.overrides=[model.use_liger=True]"])
    check_sft_overrides(spec)
    assert check(sft_run_overrides(spec, RUN))["config"]["model"]["use_liger"] is True
    [problem] = check(["optim.learning_rate=1"])["problems"]
    assert problem.startswith("optim.learning_rate: verl 0.9.1 has no such setting")
