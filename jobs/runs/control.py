"""What the outside and a running job say to each other."""

from typing import Protocol

from exgrpo_core.errors import UserError


class TrainingError(UserError, RuntimeError):
    """Training cannot start or continue; the message says why in one sentence."""


class StoppedBeforeStartError(Exception):
    """A stop was asked for while the model that a run starts from was made."""


class Control(Protocol):
    """What a loop asks and tells while it runs."""

    def stop_requested(self) -> bool:
        """Return whether the run should write a checkpoint at the next step boundary and return."""
        ...

    def heartbeat(self, step: int) -> None:
        """Show that the run lives and that `step` is done."""
        ...
