"""Complete checkpoints: written to a hidden folder, made visible by one rename, checked by a manifest."""

import contextlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, inside
from exgrpo_core.bounded_json import file_crc, read_json
from exgrpo_core.durable_files import sync
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from exgrpo_core.recording.attempt_gate import exit_if_fenced
from exgrpo_core.recording.run_folder import RUN_ID

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt")
"""Files of a tokenizer in the folder of a policy."""
MANIFEST = "manifest.json"
ADAPTER_CONFIG = "adapter_config.json"
"""File of a policy whose folder holds low-rank adapters instead of weights."""
BASE_FIELD = "base_model_name_or_path"
"""The model that adapters belong to: with `.` first, a folder as seen from theirs."""
PREFIX = "step-"
NEWEST = "last"
"""What names a run's newest checkpoint, in place of a step."""
NUM_READERS = 8
"""Files whose checksums are computed at once."""
_OF_RANK = re.compile(r"[^/]+(_world_size_\d+_rank_\d+)\.pt$")
_CHECKSUMS_OF_RANK = r"checksums\1.json"
"""Files of one of many GPUs, and where it wrote their sizes and checksums (`verl_plugin.rank_files`)."""
_NAME = re.compile(rf"{PREFIX}[0-9]{{8,12}}")


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
    """Let `write` fill a hidden folder, then make it the checkpoint at `step`; a kill leaves it whole or absent.

    Each save has its own hidden folder, so that a worker that was given up and continues cannot change it.
    """
    target = checkpoint_path(checkpoints, step)
    hidden = checkpoints / f".{target.name}.{secrets.token_hex(4)}"
    hidden.mkdir(parents=True)
    try:
        write(Checkpoint(step, hidden))
        _write_manifest(hidden, step)
        exit_if_fenced()
        _replace(target, hidden)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    sync(checkpoints)
    return Checkpoint(step, target)


def _replace(target: Path, hidden: Path) -> None:
    """Rename a folder to `target`; an older one there stays if that fails."""
    older = hidden.with_name(f"{hidden.name}.older")
    with contextlib.suppress(FileNotFoundError):
        target.rename(older)
    try:
        hidden.rename(target)
    except OSError:
        if older.exists():
            older.rename(target)
        raise
    shutil.rmtree(older, ignore_errors=True)


def remove_unfinished(checkpoints: Path) -> None:
    """Remove the hidden folders of saves that did not finish; call it only while this process saves nothing."""
    exit_if_fenced()
    for hidden in checkpoints.glob(f".{PREFIX}[0-9]*"):
        logger.info("%s is removed: its save did not finish.", hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """Return checkpoint folders, newest first, damaged ones included; folders with other names are not checkpoints."""
    return sorted((path for path in checkpoints.glob(f"{PREFIX}*") if _NAME.fullmatch(path.name)), reverse=True)


def list_steps(checkpoints: Path) -> list[int]:
    """Return the steps of all checkpoint folders, oldest first, of damaged ones too."""
    return sorted(map(step_of, list_checkpoints(checkpoints)))


def step_of(checkpoint: Path) -> int:
    """Return the step that the name of a checkpoint's folder tells."""
    return int(checkpoint.name.removeprefix(PREFIX))


def start_folder(run: RunDirectory, target: str) -> Path:
    """Return where a run keeps its copy of the model of the checkpoint `ID@STEP` that it begins with."""
    run_id, _, step = target.rpartition("@")
    return checkpoint_path(run.model_path / run_id, int(step))


def kept_start(run: RunDirectory, source: str) -> Path | None:
    """Return a run's copy of the model of `source`: `ID@STEP` or `ID@last`; None of other sources and before it."""
    run_id, at, step = source.rpartition("@")
    copies = list_checkpoints(run.model_path / run_id) if at and RUN_ID.fullmatch(run_id) else []
    return next((copy for copy in copies if step in (NEWEST, str(step_of(copy)))), None)


def find_fault(path: Path, *, leaves_to_ranks: bool = False) -> Fault | None:
    """Return what is wrong with a checkpoint, by the name of its file inside the run, or None if it is whole.

    `leaves_to_ranks`: content that each GPU's process compares before it reads it is not read here.
    """
    folder = f"{path.parent.name}/{path.name}"
    try:
        step, files = _read_manifest(path / MANIFEST)
        for name in files:
            if not inside(path, name).is_file():
                return Fault(FaultKind.MISSING, f"{folder}/{name}")
        changed = [name for name, (size, _) in files.items() if (path / name).stat().st_size != size]
        if not changed:
            if leaves_to_ranks:
                files = {name: entry for name, entry in files.items() if _checksums_file(name) not in files}
            found = zip(files.items(), _checksums([path / name for name in files]), strict=True)
            changed = [name for (name, (_, wanted)), crc in found if crc != wanted]
        if changed:
            return Fault(FaultKind.CHANGED, f"{folder}/{changed[0]}")
    except RunDirectoryError:
        return Fault(FaultKind.OUTSIDE, f"{folder}/{name}")
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return Fault(FaultKind.UNREADABLE, f"{folder}/{MANIFEST}", details="it is missing or damaged")
    if path.name == checkpoint_path(path, step).name:
        return None
    return Fault(FaultKind.UNREADABLE, folder, details=f"it holds the checkpoint of step {step}")


def _checksums_file(name: str) -> str | None:
    """Return where a GPU's process wrote the checksum of its file; None of other files."""
    return _OF_RANK.sub(_CHECKSUMS_OF_RANK, name) if _OF_RANK.search(name) else None


def open_checkpoint(path: Path, *, leaves_to_ranks: bool = False) -> Checkpoint:
    """Return the checkpoint in a folder, see `find_fault`.

    Raises:
        DamagedCheckpointError: It is not whole; names the file.
    """
    fault = find_fault(path, leaves_to_ranks=leaves_to_ranks)
    if fault is not None:
        raise DamagedCheckpointError(describe_fault(fault).rstrip("."))
    return Checkpoint(step_of(path), path)


def open_newest(
    checkpoints: Path, read: Callable[[Checkpoint], T], *, leaves_to_ranks: bool = False
) -> tuple[Checkpoint, T] | None:
    """Return the newest checkpoint that is whole and what `read` made of it; None where there is no checkpoint.

    With `leaves_to_ranks` (see `find_fault`), `read` has each rank compare its files. It raises
    `DamagedCheckpointError` for damage that a manifest does not show. Damaged newer checkpoints are renamed, so that
    they do not count as kept and are not read again.

    Raises:
        DamagedCheckpointError: There are checkpoints, none of them whole; names what is wrong with each.
    """
    faults: dict[Path, str] = {}
    for path in list_checkpoints(checkpoints):
        try:
            checkpoint = open_checkpoint(path, leaves_to_ranks=leaves_to_ranks)
            content = read(checkpoint)
        except DamagedCheckpointError as error:
            logger.warning("checkpoint skipped: %s", error)
            faults[path] = str(error)
            continue
        for damaged in faults:
            damaged.rename(_free_name(damaged))
        return checkpoint, content
    if faults:
        raise DamagedCheckpointError(
            f"No checkpoint is whole ({'; '.join(faults.values())}); copy one from a backup, or clone the run to train "
            "from the start."
        )
    return None


def _free_name(damaged: Path) -> Path:
    names = (damaged.with_name(f"damaged-{i}-{damaged.name}") for i in count(1))
    return next(name for name in names if not name.exists())


def prune_checkpoints(checkpoints: Path, num_kept: int, best: int | None = None) -> None:
    """Remove all but the newest `num_kept` checkpoints and that of the step `best`; no reader sees one half removed."""
    for path in list_checkpoints(checkpoints)[num_kept:]:
        if best is None or path != checkpoint_path(checkpoints, best):
            hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            path.rename(hidden)
            shutil.rmtree(hidden)


def _read_manifest(path: Path) -> tuple[int, dict[str, list[int]]]:
    manifest = read_json(path)
    if manifest.pop("crc", None) != _manifest_crc(manifest):
        raise ValueError(f"{path}: differs from what was written (checksum).")
    return int(manifest["step"]), manifest["files"]


def _write_manifest(folder: Path, step: int) -> None:
    by_ranks = _written_by_ranks(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in by_ranks)
    entries = by_ranks | {path: (path.stat().st_size, crc) for path, crc in zip(files, _checksums(files), strict=True)}
    manifest = {"step": step, "files": {str(path.relative_to(folder)): entries[path] for path in sorted(entries)}}
    (folder / MANIFEST).write_text(json.dumps(manifest | {"crc": _manifest_crc(manifest)}), encoding="utf-8")
    for path in [*files, folder / MANIFEST, *(child for child in folder.rglob("*") if child.is_dir()), folder]:
        sync(path)


def _written_by_ranks(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return size and checksum of the files that each GPU's process has checked and made durable."""
    return {
        path.parent / name: (size, crc)
        for path in folder.rglob("checksums_world_size_*_rank_*.json")
        for name, (size, crc) in read_json(path).items()
    }


def _checksums(files: Sequence[Path]) -> list[int]:
    """Return the CRC-32 of each file; of a large model, files of many ranks are read at once, while its GPUs wait."""
    with ThreadPoolExecutor(NUM_READERS) as pool:
        return list(pool.map(file_crc, files))


def _manifest_crc(manifest: dict[str, Any]) -> int:
    return crc32(json.dumps(manifest).encode())


def describe_resume(run: RunDirectory) -> str:
    """Return in one sentence from which step a training run will continue; nothing of one without checkpoints.

    A checkpoint whose weights turn out to be damaged is passed over later, as the run's log says.
    """
    steps = list_steps(run.checkpoints_path)
    return f"Resumes from step {steps[-1]}." if steps else ""
