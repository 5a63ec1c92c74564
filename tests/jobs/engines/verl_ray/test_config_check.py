"""Settings of a run, composed with verl's own configuration."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.engines.verl_ray.overrides_from_spec import READ, UNREAD
from jobs.engines.verl_ray.sft_overrides import sft_run_overrides
from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from jobs.preflight.dry_run import plan_run
from jobs.preflight.machine_fit import config_name, run_overrides
from jobs.specs.settings import apply_settings
from jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec, preset_names
from tests.verl_on_cpu import on_cpu

config_check = pytest.importorskip("jobs.engines.verl_ray.config_check", reason="needs the verl environment")
pytestmark = pytest.mark.verl

RUN = Path("/runs/20260101-a run")


def compose(spec: TrainSpec) -> Any:
    found = config_check.check(run_overrides(spec, RUN), config_name(spec))
    assert found["problem"] == ""
    return found["config"]


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith(("paper-", "qwen-"))])
def test_every_preset_makes_a_configuration_that_verl_knows(name):
    spec = load_preset(name).model_copy(update={"engine": "verl"})
    config = compose(spec)
    optim = config["optim"] if spec.sft else config["actor_rollout_ref"]["actor"]["optim"]
    assert (optim["lr"], optim["betas"]) == (spec.optim.learning_rate, [spec.optim.beta1, spec.optim.beta2])
    assert config["data"]["train_batch_size"] == spec.algorithm.batch_size
    assert config["trainer"]["default_local_dir"] == f"{RUN}/verl" + ("/sft" if spec.sft else "")
    assert config["trainer"]["total_training_steps"] == spec.num_steps


def test_settings_without_a_gpu_and_of_a_resume_are_known_too():
    config = compose(parse_spec({"engine": "verl", "model": {"device": "cpu"}, "verl": on_cpu(1)}, "test"))
    assert config["actor_rollout_ref"]["actor"]["strategy"] == "fsdp2"
    spec = apply_settings(load_preset("paper-sft"), ["engine=verl", "model.device=cpu"])
    words = sft_run_overrides(spec, RUN, resume_path=RUN / "resume" / "global_step_700")
    assert config_check.check(words, config_name(spec))["problem"] == ""


@pytest.mark.parametrize("num_gpus", [1, 8])
def test_a_local_ray_counts_processors_for_all_of_verls_processes_and_the_queue_takes_any_evaluation(num_gpus):
    config = compose(parse_spec({"engine": "verl", "verl": {"gpus_per_node": num_gpus}}, "test"))
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]
    # Other actors take none while they run, but need a free one to start.
    assert config["ray_kwargs"]["ray_init"]["num_cpus"] > storage["num_data_storage_units"] + 1 + 3 * num_gpus
    assert storage["total_storage_size"] // storage["num_data_storage_units"] > 12_032 * 32


def test_own_override_reaches_the_configuration():
    assert (
        compose(parse_spec({"engine": "verl", "verl": {"overrides": ["reward.num_workers=3"]}}, "test"))["reward"][
            "num_workers"
        ]
        == 3
    )
    spec = apply_settings(load_preset("paper-sft"), ["engine=verl", "verl.overrides=[model.use_liger=True]"])
    assert compose(spec)["model"]["use_liger"] is True


@pytest.mark.parametrize("word", ["trainer.nodes=2", "a b", "trainer.logger=[", "transfer_queue.backend=${nothing}"])
def test_what_verl_does_not_have_and_what_hydra_refuses_is_told_by_its_first_line(word):
    problem = config_check.check(["actor_rollout_ref.rollout.name=vllm", word])["problem"]
    assert problem.startswith("verl's configuration: ")
    assert "\n" not in problem


def test_the_lists_name_settings_that_verl_has():
    known = set(paths(compose(parse_spec({"engine": "verl"}, "test"))))
    assert (READ | UNREAD) - known == {"actor_rollout_ref.rollout.enable_sleep_mode"}, "added by a plus"


def paths(config: dict, prefix: str = ""):
    for name, value in config.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def test_the_program_reads_and_writes_json():
    program = [sys.executable, "-m", "jobs.engines.verl_ray.config_check"]
    words = json.dumps(["actor_rollout_ref.rollout.name=vllm", "trainer.nodes=2"]).encode()
    found = json.loads(subprocess.run(program, input=words, capture_output=True, check=True).stdout)
    assert "trainer.nodes" in found["problem"]


def test_a_run_with_a_typo_is_refused_from_outside_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, sys.executable)
    overrides = ["actor_rollout_ref.actor.optim.weight_deca=0.1"]
    with pytest.raises(SpecError, match="weight_deca"):
        plan_run(parse_spec({"engine": "verl", "verl": {"overrides": overrides}}, "test"), tmp_path)
