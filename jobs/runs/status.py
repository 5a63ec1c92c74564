"""States of a run: which there are, which have ended, which can be resumed."""

from enum import StrEnum


class RunStatus(StrEnum):
    """A run's state. `lost`: its worker ended without an outcome."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


def status_label(status: str) -> str:
    """Return the name of a state for people."""
    return "finished" if status == RunStatus.SUCCEEDED else status


ENDED = frozenset({RunStatus.STOPPED, RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.LOST})
"""States in which no process of the run is alive."""

RESUMABLE = frozenset({RunStatus.STOPPED, RunStatus.FAILED, RunStatus.LOST})
"""States from which `resume` opens a new attempt."""
