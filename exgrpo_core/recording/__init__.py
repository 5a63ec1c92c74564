"""Recording from a loop of one's own, into a run folder that every page of the workbench opens.

    from exgrpo_core import recording

    run = recording.start("my run", {"lr": 1e-6})
    run.log(step, {"loss": 0.3}, trajectories=[{"prompt": "1 + 1?", "response": "2", "reward": 1.0}])
    run.finish()

No torch and no server. `init`, `log`, `finish`, `config` and `Table` are names of W&B. A script that logs to it
can import this module as `wandb`.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from exgrpo_core.durable_files import explain
from exgrpo_core.errors import UserError
from exgrpo_core.recording.lines import as_plain
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory
from exgrpo_core.recording.run import Run
from exgrpo_core.recording.run_attempt import MAX_NAME, newest_attempt, open_attempt
from exgrpo_core.recording.wandb_names import Config, Table, as_settings

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
RUNS_ROOT_VARIABLE = "EXGRPO_RUNS_ROOT"
_current: list[Run] = []
_named: set[tuple[str, str]] = set()
"""Arguments that a warning named."""
logger = logging.getLogger(__name__)


class CannotRecordError(UserError):
    """The run's folder cannot be written; one sentence says why."""


def start(
    name: str,
    config: object = None,
    folder: str | Path | None = None,
    *,
    run_id: str | None = None,
    rank: int | None = None,
    num_ranks: int | None = None,
) -> Run:
    """Make the folder of a run and return its recorder.

    Args:
        name: What people call the run.
        config: The settings of the loop, a mapping or parsed arguments; values that JSON cannot hold become texts.
        folder: The folder of all runs; by default `EXGRPO_RUNS_ROOT`, else `runs`.
        run_id: The name of the run's folder. If it is there, its next attempt is recorded: what earlier ones recorded
            from its first step on is then left out of the pages. Several ranks need it.
        rank: Which process of several this is; each has a file of its own. By default `RANK`, else 0.
        num_ranks: How many there are, by default `WORLD_SIZE`, else 1.

    Raises:
        InputError: The name or id cannot be a run's.
        CannotRecordError: The folder cannot be written.
    """
    root = Path(folder if folder is not None else os.environ.get(RUNS_ROOT_VARIABLE) or "runs")
    number = int(os.environ.get("RANK") or 0) if rank is None else rank
    count = int(os.environ.get("WORLD_SIZE") or 1) if num_ranks is None else num_ranks
    spec = {"kind": "recorded", "name": name, "config": as_plain(as_settings(config))}
    try:
        run = Run(open_attempt(root, spec, run_id, number, max(count, number + 1)))
    except OSError as error:
        raise CannotRecordError(f"{root}: {explain(error)}.") from None
    _current[:] = [run]
    return run


def reopen(path: str | Path) -> Run:
    """Return the recorder of a recorded run of one process, to append to what it has; no step is repeated.

    Raises:
        InputError: It is no recorded run, or another process records in it.
        CannotRecordError: The folder cannot be written.
    """
    try:
        return Run(newest_attempt(Path(path)))
    except OSError as error:
        raise CannotRecordError(f"{path}: {explain(error)}.") from None


def init(
    project: str | None = None,
    name: str | None = None,
    config: object = None,
    dir: str | Path | None = None,
    id: str | None = None,
    **others: object,
) -> Run:
    """Start a run as `wandb.init` does; its name is `name`, else the project's. A warning names what has no effect."""
    _name_unused("init", others)
    return start(name or project or "run", config, dir, run_id=id)


def log(
    data: Mapping[str, Any],
    step: int | None = None,
    commit: bool | None = None,
    trajectories: Iterable[object] = (),
    **others: object,
) -> None:
    """Record metrics in the run that was started last, as `wandb.log` does; without a run nothing happens.

    With `commit=False` the next call without a step belongs to the same step.
    """
    _name_unused("log", others)
    for run in _current:
        run.log(data, trajectories=trajectories, step=step)
        if commit is False:
            run.stay_in_step()


def finish(exit_code: int | None = None, **others: object) -> None:
    """End the run that was started last; with an exit code other than 0 it has failed."""
    _name_unused("finish", others)
    for run in _current:
        run.finish("failed", f"It ended with exit code {exit_code}.") if exit_code else run.finish()
    _current.clear()


def current() -> Run | None:
    """Return the run that was started last, None if there is none."""
    return _current[0] if _current else None


def _name_unused(function: str, arguments: Mapping[str, object]) -> None:
    new = [name for name in arguments if (function, name) not in _named]
    if new:
        logger.warning("%s: %s: these settings of W&B have no effect here.", function, ", ".join(new))
        _named.update((function, name) for name in new)


def __getattr__(name: str) -> Config:
    """Return the `config` of the run that was started last."""
    if name == "config" and _current:
        return _current[0].config
    why = "there is no run; call init first" if name == "config" else f"module {__name__!r} has none"
    raise AttributeError(f"{name}: {why}.")
