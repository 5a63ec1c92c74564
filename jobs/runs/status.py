"""States of a run: which there are, which have ended, which can be resumed."""

from enum import StrEnum


class RunStatus(StrEnum):
    """A run's state. `lost`: its worker ended without an outcome."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


ENDED = frozenset({RunStatus.STOPPED, RunStatus.FINISHED, RunStatus.FAILED, RunStatus.LOST})
"""States in which no process of the run is alive."""

RESUMABLE = frozenset({RunStatus.STOPPED, RunStatus.FAILED, RunStatus.LOST})
"""States from which `resume` opens a new attempt."""
