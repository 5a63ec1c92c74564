"""Ray and verl's trainer while a run needs them; both are ended afterwards."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
import transfer_queue as tq
import verl
from omegaconf import DictConfig, OmegaConf
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.utils.device import get_device_name

from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME
from exgrpo_core.verl_plugin.version import check_version
from jobs.engines.verl_ray.ray_folder import ray_folder
from jobs.engines.verl_ray.trainer import WorkbenchTrainer
from jobs.machine.gc_tuning import collect_rarely
from jobs.specs.verl import CLUSTER_VARIABLE

logger = logging.getLogger(__name__)

START_ATTEMPTS = 4
START_TIMEOUT = "timed out during startup"
QUIET_VARIABLES = {"PYTHONWARNINGS": "ignore::UserWarning:verl.workers.engine"}
"""Every process of verl warns of each training engine that is not installed."""
FORWARDED_VARIABLES = (
    "VERL_PLATFORM", "VERL_ENGINE_DEVICE", "OMP_NUM_THREADS", "TQ_NUM_THREADS", "HF_HUB_OFFLINE", "HF_HOME",
    ALLOWED_CODE_VARIABLE,
)  # fmt: skip
"""Environment variables of this process that Ray's processes need."""


@contextmanager
def open_trainer(config: DictConfig) -> Iterator[WorkbenchTrainer]:
    """Start Ray and the trainer that `config` describes, and end both afterwards.

    Raises:
        EngineError: This is not the version of verl that the plug-in is written for, or verl did not load the plug-in.
    """
    check_verl()
    OmegaConf.resolve(config)
    config.transfer_queue.enable = True
    with ray_session(config):
        tq.init(config.transfer_queue)
        try:
            trainer = WorkbenchTrainer(config)
            trainer.start()
            yield trainer
        finally:
            tq.close()


def check_verl() -> None:
    """Check verl's version and that its import loaded this project's platform, which verl itself does not check.

    Raises:
        EngineError: One of them is wrong; the message says what to do.
    """
    check_version(verl.__version__, "run `make verl-env`, on NVIDIA GPUs `make verl-env GPU=1`")
    if os.environ.get("VERL_PLATFORM") == PLATFORM_NAME != get_device_name():
        raise EngineError(f"verl: runs on {get_device_name()} although the CPU is configured; run `make verl-env`.")


@contextmanager
def ray_session(config: DictConfig) -> Iterator[None]:
    """Join the cluster that this job was submitted to, or start a local Ray and end it afterwards."""
    options = _init_options(config)
    # Ray replaces the worker's signal handlers, through which a stop is requested.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with ExitStack() as at_end:
        is_local = CLUSTER_VARIABLE not in os.environ
        location = {"_temp_dir": str(at_end.enter_context(ray_folder()))} if is_local else {"address": "auto"}
        at_end.callback(ray.shutdown)
        _start(options | location)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        yield


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


def _init_options(config: DictConfig) -> dict[str, Any]:
    """Return the options of `ray.init`, verl's defaults for its workers' environment included."""
    runtime_env = get_ppo_ray_runtime_env(config)
    runtime_env["env_vars"] |= QUIET_VARIABLES | {
        name: os.environ[name] for name in FORWARDED_VARIABLES if name in os.environ
    }
    runtime_env["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    # Imports in verl's eight processes are half of a short run's time; `worker_setup` resets the collector.
    runtime_env["worker_process_setup_hook"] = f"{collect_rarely.__module__}.{collect_rarely.__qualname__}"
    options: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.get("ray_init", {}), resolve=True)
    if CLUSTER_VARIABLE in os.environ:
        options = {
            name: value for name, value in options.items() if name not in ("num_cpus", "num_gpus", "include_dashboard")
        }
    configured = options.pop("runtime_env", None) or {}
    return options | {"runtime_env": runtime_env | configured, "log_to_driver": True}
