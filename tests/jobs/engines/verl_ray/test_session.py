"""The run's worker around verl: its version and loggers."""

import json
import sys
import warnings

import pytest

from exgrpo_core.errors import EngineError
from tests.jobs.engines.verl_ray.engines import tiny_spec

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture
def config(monkeypatch, tmp_path):
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))

    def compose(*words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from jobs.engines.verl_ray.overrides_from_spec import verl_overrides
            from jobs.engines.verl_ray.session import compose_config

            return compose_config([*verl_overrides(tiny_spec(tmp_path, 1), tmp_path / "run"), *words])

    return compose


def test_verls_own_loggers_get_the_metrics_and_its_console_is_left_to_the_log(config, tmp_path):
    from jobs.engines.verl_ray.session import open_verl_loggers

    assert open_verl_loggers(config()) == []
    (logger,) = open_verl_loggers(config("trainer.logger=[console,file]"))
    logger.log({"reward/mean": 0.25}, 3)
    logger.close()
    (file,) = tmp_path.rglob("*.jsonl")
    assert json.loads(file.read_text()) == {"step": 3, "data": {"reward/mean": 0.25}}


@pytest.mark.parametrize("name", ["nowhere", "wandb"])
def test_logger_that_verl_does_not_know_or_that_is_not_installed_is_refused_by_name(config, monkeypatch, name):
    from jobs.engines.verl_ray.session import open_verl_loggers

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(EngineError, match=name):
        open_verl_loggers(config(f"trainer.logger=[console,{name}]"))


def test_verl_has_the_expected_version_and_loaded_the_plugin(monkeypatch):
    import verl

    from jobs.engines.verl_ray import session

    session.check_verl()
    monkeypatch.setattr(verl, "__version__", "0.1")
    with pytest.raises(EngineError, match="make verl-env"):
        session.check_verl()
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, session.PLUGIN)
    with pytest.raises(EngineError, match="did not load"):
        session.check_verl()
