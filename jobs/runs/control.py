"""The interface between a running job and the process around it."""

from typing import Protocol

from exgrpo_core.errors import UserError


class TrainingError(UserError, RuntimeError):
    """Training cannot start or continue; the message says why in one sentence."""


class StoppedBeforeStartError(Exception):
    """A stop was requested while the run's initial model was made."""


class Control(Protocol):
    """What a training loop calls while it runs."""

    def stop_requested(self) -> bool:
        """Return whether the run should write a checkpoint at the next step boundary and return."""
        ...

    def heartbeat(self, step: int) -> None:
        """Report that the run lives and that `step` is done."""
        ...
