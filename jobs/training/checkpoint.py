"""Whole checkpoints: written beside, checked by a manifest, made visible by one rename."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar
from zlib import crc32

logger = logging.getLogger(__name__)

T = TypeVar("T")

MANIFEST = "manifest.json"
PREFIX = "step-"


class DamagedCheckpointError(Exception):
    """A checkpoint that cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder whose files match its manifest."""

    step: int
    path: Path

    @property
    def policy(self) -> Path:
        """Folder of the engine: a Hugging Face model plus optimizer and generator."""
        return self.path / "policy"

    @property
    def experience(self) -> Path:
        """Folder of `ExGRPOState`."""
        return self.path / "experience"


def checkpoint_path(checkpoints: Path, step: int) -> Path:
    """Return the folder of the checkpoint at `step`."""
    return checkpoints / f"{PREFIX}{step:08d}"


def save_checkpoint(checkpoints: Path, step: int, write: Callable[[Checkpoint], None]) -> Checkpoint:
    """Let `write` fill a hidden folder, then make it the checkpoint at `step`; a kill leaves it whole or absent."""
    target = checkpoint_path(checkpoints, step)
    hidden = checkpoints / f".{target.name}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    write(Checkpoint(step, hidden))
    files = sorted(path for path in hidden.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(hidden)): [path.stat().st_size, _file_crc(path)] for path in files}
    (hidden / MANIFEST).write_text(json.dumps({"step": step, "files": manifest}), encoding="utf-8")
    for path in [*files, hidden / MANIFEST, *(folder for folder in hidden.rglob("*") if folder.is_dir()), hidden]:
        _sync(path)
    if target.exists():
        shutil.rmtree(target)
    hidden.rename(target)
    _sync(checkpoints)
    return Checkpoint(step, target)


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """Return checkpoint folders, newest first, whole or not."""
    return sorted(checkpoints.glob(f"{PREFIX}*"), reverse=True)


def find_fault(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, naming the file, or None if it is whole."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"].items()
        for name, (size, crc) in files:
            file = path / name
            if not file.is_file():
                return f"{file} is missing"
            if file.stat().st_size != size or _file_crc(file) != crc:
                return f"{file} is damaged"
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return f"{path / MANIFEST} is missing or damaged"
    return None


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a folder.

    Raises:
        DamagedCheckpointError: It is not whole; names the file.
    """
    fault = find_fault(path)
    if fault is not None:
        raise DamagedCheckpointError(fault)
    return Checkpoint(int(path.name.removeprefix(PREFIX)), path)


def open_newest(checkpoints: Path, read: Callable[[Checkpoint], T]) -> tuple[Checkpoint, T] | None:
    """Return the newest checkpoint that is whole and what `read` made of it; None where there is no checkpoint.

    `read` raises `DamagedCheckpointError` for what a manifest does not cover. Damaged newer ones are renamed, so that
    they neither count as kept nor are looked at again.

    Raises:
        DamagedCheckpointError: There are checkpoints, none of them whole; names what is wrong with each.
    """
    faults: dict[Path, str] = {}
    for path in list_checkpoints(checkpoints):
        try:
            checkpoint = open_checkpoint(path)
            content = read(checkpoint)
        except DamagedCheckpointError as error:
            logger.warning("checkpoint passed over: %s", error)
            faults[path] = str(error)
            continue
        for damaged in faults:
            damaged.rename(_free_name(damaged))
        return checkpoint, content
    if faults:
        raise DamagedCheckpointError(
            f"No checkpoint is whole ({'; '.join(faults.values())}); remove them to start from step 0."
        )
    return None


def _free_name(damaged: Path) -> Path:
    names = (damaged.with_name(f"damaged-{i}-{damaged.name}") for i in count(1))
    return next(name for name in names if not name.exists())


def prune_checkpoints(checkpoints: Path, num_kept: int) -> None:
    """Remove all but the newest `num_kept` checkpoints."""
    for path in list_checkpoints(checkpoints)[num_kept:]:
        shutil.rmtree(path)


def _file_crc(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = crc32(block, value)
    return value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
