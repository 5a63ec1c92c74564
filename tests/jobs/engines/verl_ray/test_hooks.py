"""The places where the plug-in enters verl, none of which is a documented interface: these fail when verl changes."""

import importlib
import inspect
import sys
import warnings

import pytest

from exgrpo_core.errors import EngineError

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _import_verl():
    """Let verl, imported first by this module or by another, warn as it likes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("jobs.engines.verl_ray.agent_loop")


def test_verl_has_the_expected_version_and_loaded_the_plugin(monkeypatch):
    import verl

    from jobs.engines.verl_ray import session

    session.check_verl()
    monkeypatch.setattr(verl, "__version__", "0.1")
    with pytest.raises(EngineError, match=r"verl: expected 0\.9\.1, got 0\.1; run `make verl-env`, .*GPU=1`"):
        session.check_verl()
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, session.PLUGIN)
    with pytest.raises(EngineError, match="did not load"):
        session.check_verl()


def test_what_the_trainer_overrides_is_there_and_is_called_by_the_set_up():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from jobs.engines.verl_ray.session import WorkbenchTrainer

    set_up = inspect.getsource(PPOTrainer._setup) + inspect.getsource(PPOTrainer.init)
    for name in ("_init_dataloader", "_load_checkpoint", "on_init_end"):
        assert getattr(PPOTrainerSync, name) is not getattr(WorkbenchTrainer, name)
        assert f"self.{name}()" in set_up


def test_agent_loops_of_this_project_are_registered():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    from exgrpo_core.verl_plugin.settings import AGENT_NAME
    from jobs.specs.verl import TEXT_AGENT_NAME

    assert {AGENT_NAME, TEXT_AGENT_NAME} <= _agent_loop_registry.keys()


def test_the_number_of_rollouts_is_still_read_from_the_prompt():
    from verl.trainer.ppo.v1 import agent_loop_tq

    assert 'prompt.pop("__rollout_n__"' in inspect.getsource(agent_loop_tq)
