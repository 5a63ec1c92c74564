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
    current,
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
    "current",
    "finish",
    "init",
    "log",
    "reopen",
    "start",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - `run`, the one that was started last, and its `config`
    return current() if name == "run" else getattr(_recording, name)
