import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.engines.verl_ray.override_table import FIELD_OF_SETTING, READ, UNREAD
from jobs.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from jobs.preflight.dry_run import plan_run
from jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec, preset_names
from tests.verl_on_cpu import on_cpu

config_check = pytest.importorskip("jobs.engines.verl_ray.config_check", reason="needs the verl environment")
pytestmark = pytest.mark.verl

RUN = Path("/runs/20260101-a run")


def check(spec: TrainSpec, *words: str) -> dict:
    return config_check.check([*ENGINE_OVERRIDES, *verl_overrides(spec, RUN), *words])


def problems(*words: str) -> list[str]:
    return config_check.check(["actor_rollout_ref.rollout.name=vllm", *words])["problems"]


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith(("paper-", "qwen-"))])
def test_every_preset_makes_a_configuration_that_verl_knows(name):
    spec = load_preset(name).model_copy(update={"engine": "verl"})
    found = check(spec)
    assert found["problems"] == []
    assert found["config"]["actor_rollout_ref"]["rollout"]["n"] == spec.algorithm.rollouts_per_question
    assert found["config"]["trainer"]["default_local_dir"] == f"{RUN}/verl"
    assert found["config"]["actor_rollout_ref"]["actor"]["optim"]["betas"] == [spec.optim.beta1, spec.optim.beta2]


def test_settings_without_a_gpu_are_known_too():
    found = check(parse_spec({"engine": "verl", "model": {"device": "cpu"}, "verl": on_cpu(1)}, "test"))
    assert found["problems"] == []
    assert found["config"]["actor_rollout_ref"]["actor"]["strategy"] == "fsdp2"


@pytest.mark.parametrize("num_gpus", [1, 8])
def test_a_local_ray_counts_processors_for_all_of_verls_processes_whatever_the_machine_has(num_gpus):
    spec = parse_spec({"engine": "verl", "verl": {"gpus_per_node": num_gpus}}, "test")
    config = check(spec)["config"]
    for_queue = config["transfer_queue"]["backend"]["SimpleStorage"]["num_data_storage_units"] + 1
    # Other actors take none while they run, but need a free one to start.
    assert config["ray_kwargs"]["ray_init"]["num_cpus"] > for_queue + 3 * num_gpus


def test_the_queue_takes_as_many_rows_as_an_evaluation_has():
    config = check(parse_spec({"engine": "verl"}, "test"))["config"]
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]
    assert storage["total_storage_size"] // storage["num_data_storage_units"] > 12_032 * 32


def test_own_override_reaches_the_configuration():
    found = check(parse_spec({"engine": "verl", "verl": {"overrides": ["reward.num_workers=3"]}}, "test"))
    assert found["config"]["reward"]["num_workers"] == 3


def test_unknown_and_wrongly_typed_keys_name_themselves():
    sentences = {
        "trainer.total_epoch=3": "trainer.total_epoch: .*did you mean trainer.total_epochs?",
        "model.path=x": "did you mean actor_rollout_ref.model.path?",
        "trainer.save_freq=often": 'trainer.save_freq: expected a number .*, got "often"',
        "data.shuffle=1": "data.shuffle: expected true or false",
        "actor_rollout_ref.actor.loss_agg_mode=null": "loss_agg_mode: expected a text",
        "trainer.logger=3": "trainer.logger: expected a list",
    }
    found = problems(*sentences)
    assert len(found) == len(sentences)
    for sentence in sentences.values():
        assert sum(re.search(sentence, item) is not None for item in found) == 1, sentence


@pytest.mark.parametrize("word", ["a b", "trainer.logger=[", "transfer_queue.backend=${nothing}"])
def test_what_hydra_refuses_is_told_by_its_first_line(word):
    (problem,) = problems(word)
    assert problem.startswith("verl's configuration: ")


def test_what_verl_takes_is_let_through():
    words = [
        "+trainer.note=mine",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "data.seed=3",
        "actor_rollout_ref.actor.optim.lr=1",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "trainer.logger=[console,wandb]",
        "data.train_files=[a.parquet,b.parquet]",
    ]
    assert problems(*words) == []
    assert problems("trainer.logger=console") == []


def test_the_table_names_settings_that_verl_has():
    config = check(parse_spec({"engine": "verl"}, "test"))["config"]
    known = set(paths(config))
    added_by_a_plus = {"actor_rollout_ref.rollout.enable_sleep_mode"}
    assert (READ | UNREAD | set(FIELD_OF_SETTING)) - known == added_by_a_plus


def paths(config: dict, prefix: str = ""):
    for name, value in config.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def test_the_program_reads_and_writes_json():
    program = [sys.executable, "-m", "jobs.engines.verl_ray.config_check"]
    words = json.dumps(["actor_rollout_ref.rollout.name=vllm", "trainer.nodes=2"]).encode()
    found = json.loads(subprocess.run(program, input=words, capture_output=True, check=True).stdout)
    assert found == {
        "problems": ["trainer.nodes: verl 0.9.1 has no such setting; did you mean trainer.nnodes?"],
        "config": None,
    }


def test_a_run_with_a_typo_is_refused_from_outside_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, sys.executable)
    spec = parse_spec(
        {"engine": "verl", "verl": {"overrides": ["actor_rollout_ref.actor.optim.weight_deca=0.1"]}}, "test"
    )
    with pytest.raises(SpecError, match=r"weight_deca: .* did you mean .*optim\.weight_decay"):
        plan_run(spec, tmp_path)
