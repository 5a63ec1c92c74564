import ast
import re
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from exgrpo.jobs.actions.preflight.dry_run import plan_run
from exgrpo.jobs.actions.preflight.machine_fit import run_overrides
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec, preset_names
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import READ, UNREAD
from exgrpo_core.verl_plugin.settings import DECIDED, REQUIRED
from tests.conftest import REPOSITORY

config_check = pytest.importorskip("exgrpo_core.verl_plugin.config_check", reason="needs the verl environment")
pytestmark = [pytest.mark.slow, pytest.mark.verl]

RUN = Path("/runs/20260101-a run")


def compose(spec: TrainSpec) -> Any:
    found = config_check.check(run_overrides(spec, RUN))
    assert found["problem"] == ""
    return found["config"]


@pytest.mark.parametrize(
    "name", [name for name in preset_names() if name.startswith(("paper-", "qwen-")) and name != "paper-sft"]
)
def test_every_preset_makes_a_configuration_that_verl_knows(name):
    spec = load_preset(name).model_copy(update={"engine": "verl"})
    config = compose(spec)
    optim = config["actor_rollout_ref"]["actor"]["optim"]
    assert (optim["lr"], optim["betas"]) == (spec.optim.learning_rate, [spec.optim.beta1, spec.optim.beta2])
    assert config["data"]["train_batch_size"] == spec.algorithm.batch_size
    assert config["trainer"]["default_local_dir"] == f"{RUN}/verl"
    assert config["trainer"]["total_training_steps"] == spec.num_steps


@pytest.mark.parametrize("num_gpus", [1, 8])
def test_a_local_ray_counts_processors_for_all_of_verls_processes_and_the_queue_takes_any_evaluation(num_gpus):
    verl = {"gpus_per_node": num_gpus, "overrides": ["reward.num_workers=3"]}
    config = compose(parse_spec({"engine": "verl", "verl": verl}, "test"))
    assert config["reward"]["num_workers"] == 3
    storage = config["transfer_queue"]["backend"]["SimpleStorage"]
    # Other actors take none while they run, but need a free one to start.
    assert config["ray_kwargs"]["ray_init"]["num_cpus"] > storage["num_data_storage_units"] + 1 + 3 * num_gpus
    assert storage["total_storage_size"] // storage["num_data_storage_units"] > 12_032 * 32


@pytest.mark.parametrize("word", ["trainer.nodes=2", "a b", "trainer.logger=[", "transfer_queue.backend=${nothing}"])
def test_what_verl_does_not_have_and_what_hydra_refuses_is_told_by_its_first_line(word):
    problem = config_check.check(["actor_rollout_ref.rollout.name=vllm", word])["problem"]
    assert problem.startswith("verl's configuration: ")
    assert "\n" not in problem


def test_the_lists_name_settings_that_verl_has():
    known = set(paths(compose(parse_spec({"engine": "verl"}, "test"))))
    added_by_a_plus = {"actor_rollout_ref.rollout.enable_sleep_mode"}
    newer = {f"actor_rollout_ref.{role}.fsdp_config.turbo_config" for role in ("actor", "ref")}
    assert (READ | UNREAD) - known == added_by_a_plus | (newer if version("verl") == "0.9.0" else set())


FSDP = ("workers/engine/fsdp/transformer_impl.py", "utils/fsdp_utils.py", "workers/engine_workers.py")
SERVERS = ("workers/rollout/*.py", "workers/rollout/vllm_rollout/*.py", "checkpoint_engine/base.py")
LOOPS = ("experimental/agent_loop/*.py", "experimental/reward_loop/*.py")
TRAINER = (
    "trainer/main_ppo.py", "trainer/ppo/v1/*.py", "trainer/constants_ppo.py", "trainer/ppo/reward.py",
    "trainer/ppo/utils.py", "utils/tracking.py",
)  # fmt: skip
WHERE = {
    "fsdp_config": (FSDP, "engine_config", "config"),
    "optim": ((*FSDP, "workers/config/optimizer.py"), "optimizer_config", "optim_config", "config", "self"),
    "model": ((*FSDP, "workers/config/model.py"), "model_config", "config", "self"),
    "rollout": ((*FSDP, *SERVERS, *LOOPS, *TRAINER), "config", "rollout_config", "agent", "checkpoint_engine_config"),
    "actor": (("workers/config/actor.py", *FSDP, *TRAINER), "self", "config", "actor_config"),
    "ref": (("workers/config/actor.py", *FSDP, *TRAINER), "self", "config", "ref_config"),
    "reward": ((*LOOPS, *TRAINER), "config", "reward_fn_config"), "trainer": (TRAINER, "config", "trainer_config"),
    "algorithm": (TRAINER, "config"), "data": ((*TRAINER, *LOOPS, "utils/dataset/*.py"), "config", "data_config"),
    "checkpoint": ((*FSDP, "utils/checkpoint/*.py"), "config", "checkpoint_config", "self"),
    "transfer_queue": (("**/*.py",), "conf", "config"),
}  # fmt: skip
"""Of each section the sources of verl that run here, and what they call the section; a key's parent is named too."""
PASSED_ON = (
    "ray_kwargs.ray_init", "actor_rollout_ref.rollout.engine_kwargs.vllm", "profiler",
    "reward.custom_reward_function.reward_kwargs",
)  # fmt: skip
"""Sections that go to another library as they are."""


@cache
def reads(section: str) -> frozenset[tuple[str, str]]:
    """Return what the section's sources read: the name of an object or mapping, and of an attribute or key of it."""
    package = "transfer_queue" if section == "transfer_queue" else "verl"
    folder, found = Path(find_spec(package).submodule_search_locations[0]), set()
    for path in {path for pattern in WHERE[section][0] for path in folder.glob(pattern)}:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=base, attr=name, ctx=ast.Load()):
                    pass
                case ast.Subscript(value=base, slice=ast.Constant(value=name)):
                    pass
                case ast.Call(func=ast.Attribute(value=base, attr="get" | "pop"), args=[ast.Constant(value=name), *_]):
                    pass
                case ast.Call(func=ast.Name(id="getattr") | ast.Attribute(attr="select"), args=[base, name, *_]):
                    name = name.value if isinstance(name, ast.Constant) else ""
                case _:
                    continue
            found.add((getattr(base, "attr", getattr(base, "id", "")), str(name).rpartition(".")[2]))
    return frozenset(found)


def has_reader(key: str, templates: str) -> bool:
    """Whether verl reads a setting, or another setting that is read takes its value."""
    *parents, name = key.split(".")
    section = next((part for part in reversed(parents) if part in WHERE), "trainer")
    names = {
        *WHERE[section][1:],
        *(f"{part}{end}" for part in (section, *parents[-1:]) for end in ("", "_config", "_conf")),
    }
    return any((base, name) in reads(section) for base in names) or f"oc.select:{key}," in templates


def is_of(key: str, names) -> bool:
    return any(f"{key}.".startswith(f"{name}.") for name in names)


def unread(config: dict, *, offered, refused) -> list[str]:
    keys = [key for key in leaves(config) if is_of(key, offered) and not is_of(key, {*refused, *PASSED_ON})]
    assert len(keys) > 50
    templates = (config_check.config_folder() / "_generated_ppo_trainer.yaml").read_text()
    return [key for key in keys if not has_reader(key, templates)]


def test_every_setting_that_an_override_may_set_is_read_by_verl():
    assert unread(compose(parse_spec({"engine": "verl"}, "test")), offered=READ, refused=UNREAD) == []


def test_every_setting_that_documents_and_refusals_name_or_a_field_decides_is_read_by_verl():
    spec = parse_spec({"engine": "verl"}, "test")
    decided = {word.partition("=")[0].lstrip("+") for word in run_overrides(spec, RUN)}
    sources = [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/*.md"),
        *REPOSITORY.glob("jobs/specs/presets/**/*.yaml"),
    ]
    sources += [*REPOSITORY.glob("exgrpo_core/verl_plugin/*.py"), *REPOSITORY.glob("jobs/**/*.py")]
    named = {name for path in sources for name in re.findall(r"[a-z]\w*(?:\.\w+)+", path.read_text())}
    config, by_the_plugin = compose(spec), {*REQUIRED, *DECIDED.values()}
    assert unread(config, offered=decided | named & set(leaves(config)), refused=by_the_plugin | UNREAD) == []


def leaves(config: dict, prefix: str = ""):
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        elif name != "_target_":
            yield f"{prefix}{name}"


def paths(config: dict, prefix: str = ""):
    for name, value in config.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def test_a_run_with_a_typo_is_refused_from_outside_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, sys.executable)
    overrides = ["actor_rollout_ref.actor.optim.weight_deca=0.1"]
    with pytest.raises(SpecError, match="weight_deca"):
        plan_run(parse_spec({"engine": "verl", "verl": {"overrides": overrides}}, "test"), tmp_path)
