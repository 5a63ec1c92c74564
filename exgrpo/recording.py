"""The recorder of `exgrpo_core.recording`, as a part of the workbench."""

from exgrpo_core.recording import (
    MAX_NAME,
    Message,
    RecordedStep,
    RecordedTrajectory,
    Run,
    finish,
    init,
    log,
    reopen,
    start,
)

__all__ = [
    "MAX_NAME",
    "Message",
    "RecordedStep",
    "RecordedTrajectory",
    "Run",
    "finish",
    "init",
    "log",
    "reopen",
    "start",
]
