"""The recorder of `exgrpo_core.recording`; `import exgrpo.recording as wandb` in a script that logs to W&B."""

from typing import Any

from exgrpo_core import recording as _recording
from exgrpo_core.recording import (
    MAX_NAME,
    Config,
    Message,
    RecordedStep,
    RecordedTrajectory,
    Run,
    Table,
    finish,
    init,
    log,
    reopen,
    start,
)

__all__ = [
    "MAX_NAME",
    "Config",
    "Message",
    "RecordedStep",
    "RecordedTrajectory",
    "Run",
    "Table",
    "finish",
    "init",
    "log",
    "reopen",
    "start",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - `config`, of the run that was started last
    return getattr(_recording, name)
