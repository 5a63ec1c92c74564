"""Checkpoints as users name them: RUN@STEP, or RUN@last."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from jobs.runs.checkpoints import checkpoint_path, find_fault, list_steps
from jobs.runs.lookup import CommandError, find_run_id, open_run

NEWEST = "last"
_STEP = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A whole checkpoint of a run."""

    run_id: str
    step: int
    policy: Path
    """Folder of its model."""


def find_checkpoint(runs_root: Path, target: str, *, reads_files: bool = True) -> NamedCheckpoint | None:
    """Return the checkpoint that `RUN@STEP` or `RUN@last` means, None for a folder or hub name.

    Its files are read to find damage, unless `reads_files` is False.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
    """
    run_text, at, step_text = target.rpartition("@")
    if not at or os.path.exists(target):
        return None
    run = open_run(runs_root, find_run_id(runs_root, run_text))
    steps = list_steps(run.checkpoints_path)
    wanted = steps[-1] if step_text == NEWEST and steps else int(step_text) if _STEP.fullmatch(step_text) else None
    if wanted not in steps:
        available = ", ".join(map(str, steps)) or "none"
        raise CommandError(f"{target}: {run.run_id} has no checkpoint at step {step_text}; there are: {available}.")
    path = checkpoint_path(run.checkpoints_path, wanted)
    fault = find_fault(path) if reads_files else None
    if fault is not None:
        raise CommandError(f"{target}: {fault}; choose another step.")
    return NamedCheckpoint(run.run_id, wanted, path / "policy")


def starting_checkpoint(runs_root: Path, target: str, *, reads_files: bool = True) -> NamedCheckpoint | None:
    """Return the checkpoint that `RUN@STEP` means, whose model a run can start from; None for a folder or hub name.

    Raises:
        CommandError: There is no such run or checkpoint, or its model is in shards, from which no run can start.
    """
    checkpoint = find_checkpoint(runs_root, target, reads_files=reads_files)
    if checkpoint is not None and not (checkpoint.policy / "config.json").is_file():
        raise CommandError(
            f"model.source: {target} has verl's sharded format; merge it first: `python -m verl.model_merger merge "
            f"--backend fsdp --local_dir {checkpoint.policy} --target_dir FOLDER`, and give FOLDER."
        )
    return checkpoint
