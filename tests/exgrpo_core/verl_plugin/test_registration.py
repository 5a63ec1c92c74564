"""What `import verl` loads of the plug-in, in processes of their own."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.verl, pytest.mark.slow]

IMPORT_VERL = """
import sys
import verl
names = {name.rpartition(".")[2] for name in sys.modules if name.startswith("exgrpo_core.verl_plugin.")}
assert names == {"registration", "settings"}, names
assert verl.utils.device.get_device_name() == "cpu"
"""
FROM_REGISTRIES = """
from verl.trainer.ppo.v1 import get_trainer_cls
from exgrpo_core.verl_plugin.replay_trainer import ReplayTrainer
ReplayTrainer.__init__ = lambda self, config: None
assert type(get_trainer_cls("exgrpo")(config=None)) is ReplayTrainer
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from exgrpo_core.verl_plugin.settings import AGENT_NAME
assert _agent_loop_registry[AGENT_NAME]["_target_"] == "exgrpo_core.verl_plugin.agent_loop.PromptTokensLoop"
from verl.workers.engine import EngineRegistry
from exgrpo_core.verl_plugin.fsdp_engine import GpuEngine
assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is GpuEngine
"""


def run(program: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", program]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]


def test_parts_are_loaded_with_what_they_extend():
    run(IMPORT_VERL + FROM_REGISTRIES)


@pytest.mark.parametrize("name", ["agent_loop", "engine", "fsdp_engine", "replay_trainer", "trainer"])
def test_any_part_can_be_imported_first(name):
    run(f"import exgrpo_core.verl_plugin.{name}")
