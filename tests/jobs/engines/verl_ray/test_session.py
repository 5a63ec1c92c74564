"""The run's worker around verl: the folder of its Ray, and verl's loggers."""

import json
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from exgrpo_core.errors import EngineError
from tests.jobs.engines.verl_ray.engines import tiny_spec

pytestmark = [pytest.mark.verl, pytest.mark.slow]

HOLDER = """
import sys, time
from jobs.engines.verl_ray.session import ray_folder
with ray_folder() as folder:
    (folder / "session_1").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def ray_folder(monkeypatch, tmp_path):
    from jobs.engines.verl_ray.session import ray_folder

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return ray_folder


def test_folder_is_there_while_it_is_needed_and_gone_afterwards(ray_folder, tmp_path):
    with ray_folder() as folder:
        (folder / "logs").mkdir()
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_living_worker_stays_and_of_a_killed_one_goes_with_the_next(ray_folder, tmp_path):
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        left = Path(holder.stdout.readline().strip())
        with ray_folder():
            assert (left / "session_1").is_dir()
        holder.send_signal(signal.SIGKILL)
    assert (left / "session_1").is_dir()
    with ray_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]


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
