"""What the plug-in uses of verl is in the one that is installed: names, signatures; settings in `test_config_check`.

`make verl-compat` runs it against several versions.
"""

import inspect
import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.house.verl_names import Use, calls, table

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.filterwarnings("default")]

NEEDS_VLLM = "verl.workers.rollout.vllm_rollout."
METHOD_CALLS = {
    "verl.trainer.ppo.v1.trainer_sync.PPOTrainerSync": {"init": 0, "_dump_generations": 6},
    "verl.trainer.ppo.ray_trainer.RayPPOTrainer": {"init_workers": 0},
    "verl.trainer.main_ppo_v0.BaseTaskRunner": {
        "add_actor_rollout_worker": 1, "add_reward_model_resource_pool": 1, "init_resource_pool_mgr": 1,
    },
    "verl.workers.engine_workers.ActorRolloutRefWorker": {
        "compute_log_prob": 1, "compute_ref_log_prob": 1, "update_actor": 1,
        "set_loss_fn": 1, "save_checkpoint": 4, "load_checkpoint": 3,
    },
    "verl.utils.tracking.Tracking": {"log": 2},
    "verl.checkpoint_engine.base.CheckpointEngineManager": {"update_weights": 1, "sleep_replicas": 0},
    "verl.experimental.agent_loop.agent_loop.AgentLoopManager": {"generate_sequences": 1},
}  # fmt: skip
"""Methods of verl's classes with the number of arguments that the plug-in gives them."""
EXTENSIONS = {
    "agent_loop.PromptTokensLoop", "blocks.BlockWorker", "fsdp_engine.GpuEngine", "trainer_v0.RunTrainerV0",
    "trainer_v1.ReplayTrainer", "trainer_v1.RunTrainerV1",
}  # fmt: skip


def find(name: str) -> Any:
    module, rest = name, []
    while True:
        try:
            return reduce(getattr, reversed(rest), import_module(module))
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.append(last)


def source_of(name: str) -> str:
    """Return the source of a module, or of a class in it."""
    folder = Path(find_spec("verl").submodule_search_locations[0])
    path = folder.joinpath(*name.split(".")[1:]).with_suffix(".py")
    if path.is_file():
        return path.read_text()
    text = path.parent.with_suffix(".py").read_text()
    begin = re.search(rf"^class {path.stem}\b", text, re.MULTILINE).start()
    return text[begin : text.find("\nclass ", begin) if "\nclass " in text[begin:] else None]


def has(value: Any, member: str) -> bool:
    if hasattr(value, member) or member in getattr(value, "model_fields", ()):
        return True
    if not inspect.isclass(value):
        return False
    modules = {inspect.getsource(inspect.getmodule(base)) for base in value.__mro__ if base.__module__[:5] == "verl."}
    return any(re.search(rf"self\.{member}\b[^=\n]*=", text) for text in modules)


@pytest.mark.parametrize("use", table(), ids=lambda use: f"{use.name}-{use.how}")
def test_verl_has_the_name(use: Use):
    if use.name.startswith(NEEDS_VLLM):
        text = source_of(use.name)
        assert [name for name in use.members if not re.search(rf"\b{name}\b", text)] == []
        return
    value = find(use.name)
    value = getattr(getattr(value, "__ray_metadata__", None), "modified_class", value)
    assert use.how == "asks for" or [member for member in use.members if not has(value, member)] == []


@pytest.mark.parametrize(("name", "num_arguments", "keywords", "has_more"), [*calls()])
def test_verls_function_takes_the_arguments(name, num_arguments, keywords, has_more):
    signature = inspect.signature(find(name))
    bind = signature.bind_partial if has_more else signature.bind
    bind(*[None] * num_arguments, **dict.fromkeys(keywords))


@pytest.mark.parametrize("name", METHOD_CALLS)
def test_verls_methods_take_the_arguments(name):
    for method, num_arguments in METHOD_CALLS[name].items():
        inspect.signature(getattr(find(name), method)).bind(None, *[None] * num_arguments)


@pytest.mark.parametrize("name", sorted(EXTENSIONS))
def test_an_extension_takes_the_arguments_of_the_method_that_it_replaces(name):
    check_extension(name)


def check_extension(name: str) -> None:
    extension = find(f"exgrpo_core.verl_plugin.{name}")
    base = next(base for base in extension.__mro__ if base.__module__.startswith("verl."))
    named = {member for use in table() for member in use.members}
    ours = [kind for kind in extension.__mro__ if kind.__module__.startswith("exgrpo_core.")]
    for method, own in [item for kind in ours for item in vars(kind).items()]:
        if not inspect.isfunction(own) or method == "__init__" or not hasattr(base, method):
            continue
        assert method in named
        given = inspect.signature(getattr(base, method)).parameters.values()
        plain = [item.name for item in given if item.kind is item.POSITIONAL_OR_KEYWORD]
        inspect.signature(own).bind(None, **dict.fromkeys(plain[1:]))
