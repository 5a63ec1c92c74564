import json
import sys
import warnings

import pytest

from exgrpo_core.errors import EngineError
from jobs.training.verl_composition import CPU_VARIABLES
from tests.jobs.engines.verl_ray.engines import tiny_spec

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture
def config(monkeypatch, tmp_path):
    for name, value in (CPU_VARIABLES | {"VERL_FILE_LOGGER_ROOT": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)

    def compose(*words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from jobs.engines.verl_ray.compose_config import compose_config
            from jobs.engines.verl_ray.overrides_from_spec import verl_overrides

            return compose_config([*verl_overrides(tiny_spec(tmp_path, 1), tmp_path / "run"), *words])

    return compose


def test_verls_own_loggers_get_the_metrics_and_its_console_is_left_to_the_log(config, tmp_path):
    from jobs.engines.verl_ray.tracking import open_verl_loggers

    assert open_verl_loggers(config()) == []
    (logger,) = open_verl_loggers(config("trainer.logger=[console,file]"))
    logger.log({"reward/mean": 0.25}, 3)
    logger.close()
    (file,) = tmp_path.rglob("*.jsonl")
    assert json.loads(file.read_text()) == {"step": 3, "data": {"reward/mean": 0.25}}


@pytest.mark.parametrize("name", ["nowhere", "wandb"])
def test_logger_that_verl_does_not_know_or_that_is_not_installed_is_refused_by_name(config, monkeypatch, name):
    from jobs.engines.verl_ray.tracking import open_verl_loggers

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(EngineError, match=rf"trainer\.logger: .*{name}"):
        open_verl_loggers(config(f"trainer.logger=[console,{name}]"))
