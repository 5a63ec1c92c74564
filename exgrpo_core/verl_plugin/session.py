"""verl in the process of a program with a loop of its own: its configuration and loggers, Ray and its trainer."""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import verl
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device
from verl.utils.tracking import Tracking

from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE, CODE_FOLDER_VARIABLE
from exgrpo_core.process_memory import collect_rarely
from exgrpo_core.verl_plugin.rollout_queue import open_queue
from exgrpo_core.verl_plugin.settings import (
    CLUSTER_VARIABLE,
    EXTERNAL_MODULES_VARIABLE,
    NO_STATISTICS,
    PLATFORM_VARIABLE,
    server_mistake,
    version_notice,
)
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer

logger = logging.getLogger(__name__)

CONSOLE = "console"
"""verl's default, which repeats the run's log."""
START_ATTEMPTS = 4
PLUGIN = "exgrpo_core.verl_plugin.registration"
_REMEDY = "`make verl-env`, on NVIDIA GPUs `make verl-env GPU=1`"
SOCKET_FOLDER = "/tmp"
"""Where verl puts sockets, whatever TMPDIR is."""
MOST_FOLDER_BYTES = 32
"""Longest path of Ray's folder: a socket's path may have 107 bytes, of which Ray's names take up to 67."""
START_TIMEOUT = "timed out during startup"
QUIET_VARIABLES = {"PYTHONWARNINGS": "ignore::UserWarning:verl.workers.engine", NO_STATISTICS: "1"}
"""Every process of verl warns of each training engine that is not installed; vLLM reports its use to its makers."""
FORWARDED_VARIABLES = (
    PLATFORM_VARIABLE, "VERL_ENGINE_DEVICE", "VERL_ENGINE_VENDOR", EXTERNAL_MODULES_VARIABLE, "OMP_NUM_THREADS",
    "TQ_NUM_THREADS", "HF_HUB_OFFLINE", "HF_HOME", ALLOWED_CODE_VARIABLE,
    CODE_FOLDER_VARIABLE,
)  # fmt: skip
"""Environment variables of this process that Ray's processes need."""


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """Return verl's whole configuration with `overrides` applied."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=list(overrides))
    auto_set_device(config)
    validate_config(config, use_reference_policy=config.actor_rollout_ref.actor.use_kl_loss, use_critic=False)
    return config


@contextmanager
def open_trainer(config: DictConfig, variables: Mapping[str, str] | None = None) -> Iterator[ExperienceTrainer]:
    """Start Ray and the trainer of verl that `config` names, and end both afterwards.

    verl's processes get `variables`.

    Raises:
        EngineError: verl did not load the plug-in, or this trainer's servers cannot have GPUs of their own.
    """
    check_verl()
    OmegaConf.resolve(config)
    if mistake := server_mistake(config, verl.__version__):
        raise EngineError(mistake)
    with ray_session(config, variables or {}), open_queue(config):
        if config.trainer.use_v1:
            from exgrpo_core.verl_plugin.trainer_v1 import RunTrainerV1 as RunTrainer
        else:
            from exgrpo_core.verl_plugin.trainer_v0 import RunTrainerV0 as RunTrainer
        trainer = RunTrainer(config)
        trainer.start()
        yield trainer


def check_verl() -> None:
    """Check that verl's import loaded the plug-in, about which verl itself is silent; warn of an untried version.

    Raises:
        EngineError: It did not; the message says what to do.
    """
    if notice := version_notice(verl.__version__):
        logger.warning(notice)
    if PLUGIN not in sys.modules:
        raise EngineError(f"verl: did not load {PLUGIN}; run {_REMEDY} again.")


@contextmanager
def ray_session(config: DictConfig, variables: Mapping[str, str]) -> Iterator[None]:
    """Join the cluster that this job was submitted to, or start a local Ray and end it afterwards."""
    # Ray replaces the worker's signal handlers, through which a stop is requested.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with ExitStack() as at_end:
        is_local = CLUSTER_VARIABLE not in os.environ
        folder = at_end.enter_context(_short_folder()) if is_local else ""
        location = {"_temp_dir": folder} if is_local else {"address": "auto"}
        at_end.callback(ray.shutdown)
        _start(_init_options(config, {"TMPDIR": folder, **variables} if is_local else variables) | location)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        yield


@contextmanager
def _short_folder() -> Iterator[str]:
    """Make a folder where temporary files belong, with a path that leaves room for the names of Ray's sockets."""
    with TemporaryDirectory(prefix="exgrpo-ray-", ignore_cleanup_errors=True) as folder:
        if len(os.fsencode(folder)) <= MOST_FOLDER_BYTES:
            yield folder
            return
        with TemporaryDirectory(prefix="exgrpo-", dir=SOCKET_FOLDER) as short:
            link = Path(short) / "ray"
            link.symlink_to(folder)
            yield str(link)


def _start(options: dict[str, Any]) -> None:
    """Start or join Ray; a busy machine may need more than the half minute that Ray allows."""
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            ray.init(**options)
        except Exception as error:  # Ray has no narrower exception.
            if START_TIMEOUT not in str(error) or attempt == START_ATTEMPTS:
                raise
            logger.warning("Ray did not start in time; trying again (%d of %d).", attempt + 1, START_ATTEMPTS)
            ray.shutdown()
        else:
            return


def _init_options(config: DictConfig, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of `ray.init`, verl's defaults for its workers' environment and `variables` included."""
    runtime_env = get_ppo_ray_runtime_env(config)
    runtime_env["env_vars"] |= QUIET_VARIABLES | {
        name: os.environ[name] for name in FORWARDED_VARIABLES if name in os.environ
    }
    runtime_env["env_vars"] |= variables
    runtime_env["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    # Imports in verl's eight processes are half of a short run's time; `agent_loop` resets the collector.
    runtime_env["worker_process_setup_hook"] = f"{collect_rarely.__module__}.{collect_rarely.__qualname__}"
    options: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.get("ray_init", {}), resolve=True)
    if CLUSTER_VARIABLE in os.environ:
        options = {
            name: value for name, value in options.items() if name not in ("num_cpus", "num_gpus", "include_dashboard")
        }
    configured = options.pop("runtime_env", None) or {}
    return options | {"runtime_env": runtime_env | configured, "log_to_driver": True}


class VerlLogger:
    """Passes metrics to verl's `Tracking`."""

    def __init__(self, config: DictConfig, backends: list[str]) -> None:
        trainer = config.trainer
        content = OmegaConf.to_container(config, resolve=True)
        self._tracking = Tracking(trainer.project_name, trainer.experiment_name, backends, content)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        self._tracking.log(dict(values), step)

    def close(self) -> None:
        """Write everything and close."""
        self._tracking.finish(exit_code=0)


def open_verl_loggers(config: DictConfig) -> list[VerlLogger]:
    """Return a logger for all backends that the configuration names besides the console, or none.

    Raises:
        EngineError: verl does not know one, or it is not installed.
    """
    named = config.trainer.logger
    backends = [name for name in ([named] if isinstance(named, str) else named or []) if name != CONSOLE]
    try:
        return [VerlLogger(config, backends)] if backends else []
    except (AssertionError, ImportError) as error:
        known = ", ".join(Tracking.supported_backend)
        raise EngineError(f"{error}; expected installed ones of {known}.", "trainer.logger") from error
