"""What `import verl` loads of the plug-in, in processes of their own."""

import ast
import importlib.util
import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.verl, pytest.mark.slow]

IMPORT_VERL = """
import sys
import verl
names = {name.rpartition(".")[2] for name in sys.modules if name.startswith("exgrpo_core.verl_plugin.")}
assert names == {"registration", "settings"}, names
assert verl.utils.device.get_device_name() == "cpu"
"""
FROM_REGISTRIES = """
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is FSDPEngineWithLMHead, "verl's for all others"
from verl.trainer.ppo.v1 import get_trainer_cls
from exgrpo_core.verl_plugin.trainer_v1 import ReplayTrainer
ReplayTrainer.__init__ = lambda self, config: None
assert type(get_trainer_cls("exgrpo")(config=None)) is ReplayTrainer
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from exgrpo_core.verl_plugin.settings import AGENT_NAME
assert _agent_loop_registry[AGENT_NAME]["_target_"] == "exgrpo_core.verl_plugin.agent_loop.PromptTokensLoop"
from exgrpo_core.verl_plugin.blocks import BlockWorker
from exgrpo_core.verl_plugin.fsdp_engine import GpuEngine
assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is GpuEngine
"""
OLDER_TRAINER = """
import inspect
import verl.trainer.main_ppo_v0
from omegaconf import OmegaConf
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
assert "resource_pool_manager" in inspect.signature(RayPPOTrainer).parameters
try:
    RayPPOTrainer(OmegaConf.create({"trainer": {}}), None, {}, None)
except AttributeError as error:
    assert "actor_rollout_ref" in str(error), error
else:
    raise AssertionError
"""


PARTS = ("agent_loop", "engine", "fsdp_engine", "trainer_v0", "trainer_v1")
PROGRAMS = {"loaded": IMPORT_VERL + FROM_REGISTRIES, "older": OLDER_TRAINER} | {
    name: f"import exgrpo_core.verl_plugin.{name}" for name in PARTS
}
EACH_IN_A_FORK = """
import json, multiprocessing, sys
import ray, tensordict, torch, transformers  # which take longest, and know nothing of verl
fork = multiprocessing.get_context("fork")
ends = {}
for name, program in json.loads(sys.argv[1]).items():
    process = fork.Process(target=exec, args=[program, {}])
    process.start()
    process.join()
    ends[name] = process.exitcode
print("FOUND", json.dumps(ends))
"""


@pytest.fixture(scope="module")
def ends() -> dict[str, int]:
    """The exit codes of the programs."""
    command = [sys.executable, "-W", "ignore", "-c", EACH_IN_A_FORK, json.dumps(PROGRAMS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    return json.loads(line.removeprefix("FOUND"))


def test_parts_are_loaded_with_what_they_extend(ends):
    assert ends["loaded"] == 0


def test_a_configuration_of_the_older_trainer_needs_nothing_of_the_newer_one(ends):
    assert ends["older"] == 0


def test_any_part_can_be_imported_first(ends):
    assert {name: ends[name] for name in PARTS} == dict.fromkeys(PARTS, 0)


STARTS = (
    "verl.trainer.main_ppo", "verl.trainer.ppo.v1.trainer_sync", "verl.workers.engine_workers",
    "verl.workers.engine.fsdp.transformer_impl", "verl.workers.rollout.llm_server", "verl.experimental.agent_loop",
    "verl.experimental.reward_loop", "exgrpo_core.verl_plugin.trainer_v1", "exgrpo_core.verl_plugin.fsdp_engine",
)  # fmt: skip
"""What a run of stock verl with the plug-in imports first in its processes."""


def test_the_extra_brings_all_that_verl_and_the_plug_in_import():
    imported = {name.partition(".")[0] for name in imports_of(STARTS)} - {
        *sys.stdlib_module_names, "verl", "exgrpo_core",
    }  # fmt: skip
    project = tomllib.loads((REPOSITORY / "exgrpo_core" / "pyproject.toml").read_text())["project"]
    # vLLM, which is not installed here, brings more; verl imports these without it too.
    brought = closure([*project["dependencies"], *project["optional-dependencies"]["verl"]])
    distributions = packages_distributions()
    missing = {name for name in imported if not brought & {item.lower() for item in distributions.get(name, [name])}}
    assert {"uvicorn", "cachetools", "ray", "transfer_queue"} <= imported
    assert missing == set()


def imports_of(names) -> set[str]:
    """Return the modules that modules of verl and of this project import at once, and those of these modules."""
    roots = {"verl": Path(packages_folder("verl")), "exgrpo_core": REPOSITORY / "exgrpo_core"}
    waiting, seen, found = [*names], set(), set()
    while waiting:
        name = waiting.pop()
        package, _, rest = name.partition(".")
        if name in seen or package not in roots:
            continue
        seen.add(name)
        path = roots[package].joinpath(*rest.split(".") if rest else ())
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not path.is_file():
            continue
        here = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.parse(path.read_text()).body:
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parents = here.split(".")[: len(here.split(".")) + 1 - node.level] if node.level else []
                module = ".".join([*parents, *([node.module] if node.module else [])])
                modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            found.update(modules)
            waiting += modules
    return found


def packages_folder(name: str) -> str:
    spec = importlib.util.find_spec(name)
    return spec.submodule_search_locations[0]


def closure(texts) -> set[str]:
    """Return the names of the distributions that requirements bring, with their extras."""
    waiting, brought = [(Requirement(text), ()) for text in texts], set()
    seen = set()
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        key = (requirement.name.lower(), frozenset(requirement.extras))
        brought.add(requirement.name.lower())
        if key in seen:
            continue
        seen.add(key)
        try:
            needed = requires(requirement.name) or []
        except PackageNotFoundError:
            continue
        waiting += [(Requirement(text), (*requirement.extras,)) for text in needed]
    return brought
