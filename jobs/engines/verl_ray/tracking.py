"""verl's loggers besides the run directory: those that `--override trainer.logger=[...]` names."""

from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf
from verl.utils.tracking import Tracking

from exgrpo_core.errors import EngineError

CONSOLE = "console"
"""verl's default, which is redundant beside the run's log."""


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
        raise EngineError(f"trainer.logger: {error}; expected installed ones of {known}.") from error
