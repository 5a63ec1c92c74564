"""The states of a run, in which recorders, the index, jobs and pages agree."""

from enum import StrEnum


class RunStatus(StrEnum):
    """A run's state, from live to ended. `lost`: its worker ended without an outcome."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"
    QUEUED = "queued"
    FAILED = "failed"
    LOST = "lost"
    STOPPED = "stopped"
    FINISHED = "finished"


LIVE = (RunStatus.QUEUED, RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)
"""States of a run that has not ended, in the order of an attempt's life."""
BROKEN = (RunStatus.FAILED, RunStatus.LOST, RunStatus.STOPPED)
"""States of a run that ended without success, from which `resume` opens a new attempt."""
ENDED = (*BROKEN, RunStatus.FINISHED)
"""States in which no process of the run is alive."""
