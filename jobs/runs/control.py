"""The interface between a running job and the process around it."""

from contextlib import AbstractContextManager
from typing import Protocol

from exgrpo_core.errors import UserError
from jobs.runs.stop_time import Phase


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

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Report that `phase` runs inside the block, which a requested stop waits for; its time is measured."""
        ...
