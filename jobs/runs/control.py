"""The interface between a running job and the process around it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

from exgrpo_core.errors import FieldsNamedError, UserError

INTERRUPTED = "A shutdown interrupted it; it continues when the workbench starts again, unless it is stopped."
"""Why a run stopped without a user's request."""

DEFAULT_GRACE_SECONDS = 120.0
"""A run that does not stop is ended by force after this long at the earliest."""
_FACTOR = 2.0
"""The grace is this many times the longest recent times: responses grow, and disks are shared."""
_UNMEASURED = 10.0
"""A first step, evaluation or checkpoint may take this many times the shortest grace."""


class Phase(StrEnum):
    """What a job does, and what a stop waits for; in training a checkpoint follows."""

    STEP = "step"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    ANSWERS = "answers"
    """The answers of an evaluation or a judge that were asked for."""


def expected_stop_seconds(phase_seconds: Mapping[Phase, float]) -> float:
    """Return the longest that a stop takes if each phase takes as long as its longest recent one."""
    return sum(phase_seconds.values())


def stop_grace(phase: Phase | None, phase_seconds: Mapping[Phase, float], shortest_seconds: float) -> float:
    """Return the seconds from a stop's request until the run may be ended by force, at least `shortest_seconds`.

    `phase_seconds` holds the longest recent time of each phase that has ended once. Without a phase and without times
    it is `shortest_seconds`.
    """
    if phase is None and not phase_seconds:
        return shortest_seconds
    last = Phase.ANSWERS if Phase.ANSWERS in {phase, *phase_seconds} else Phase.CHECKPOINT
    num_unmeasured = len({phase or last, last} - phase_seconds.keys())
    needed = _FACTOR * expected_stop_seconds(phase_seconds) + num_unmeasured * _UNMEASURED * shortest_seconds
    return max(shortest_seconds, needed)


class TrainingError(FieldsNamedError, UserError, RuntimeError):
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
