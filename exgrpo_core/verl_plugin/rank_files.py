"""What each rank writes into verl's FSDP checkpoints: checked by itself, and read by another number of ranks.

A rank has its own files of model, optimizer and the rest, `model_world_size_4_rank_0.pt`. Next to them it writes their
sizes and checksums, `checksums_world_size_4_rank_0.json`, which every rank of a resume compares before it reads.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from exgrpo_core.bounded_json import UnreadableFileError, file_crc, read_json
from exgrpo_core.durable_files import sync, write_whole

CHECKSUMS = "checksums_world_size_{}_rank_{}.json"
_NAME = re.compile(r"checksums_world_size_(\d+)_rank_0\.json")
# Of the random generators' state, in addition to what torch reads anyway.
_NUMPY: list[Any] = [_reconstruct, np.ndarray, np.dtype, type(np.dtype(np.uint32))]


def write_checksums(folder: Path, num_ranks: int, rank: int) -> None:
    """Make a rank's files durable, and write down their sizes and checksums."""
    paths = sorted(folder.glob(f"*_world_size_{num_ranks}_rank_{rank}.pt"))
    for path in paths:
        sync(path)
    checksums = {path.name: [path.stat().st_size, file_crc(path)] for path in paths}
    write_whole(folder / CHECKSUMS.format(num_ranks, rank), json.dumps(checksums))


def remove_others(folder: Path, num_ranks: int) -> None:
    """Remove what other numbers of ranks wrote: a step that is done again has one checkpoint."""
    for path in folder.glob("*_world_size_*_rank_*"):
        if f"_world_size_{num_ranks}_" not in path.name:
            path.unlink()


def num_ranks_of(folder: Path) -> int | None:
    """Return how many ranks wrote a checkpoint, None of one without checksums."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob(CHECKSUMS.format("*", 0)))
    return next((int(name[1]) for name in names if name), None)


def find_changed(folder: Path, num_ranks: int, rank: int) -> list[str]:
    """Return the names of those files that differ from what was written, of this rank's share of all ranks' files."""
    num_saved = num_ranks_of(folder)
    changed = []
    for saved in range(rank, num_saved or 0, num_ranks):
        name = CHECKSUMS.format(num_saved, saved)
        try:
            checksums = read_json(folder / name)
            changed += [name for name, wanted in checksums.items() if wanted != _measured(folder / name)]
        except (OSError, UnreadableFileError, AttributeError):
            changed.append(name)
    return changed


def _measured(path: Path) -> list[int]:
    try:
        return [path.stat().st_size, file_crc(path)]
    except FileNotFoundError:
        return []


def load_resharded(folder: Path, num_saved: int, module: Any, optimizer: Any, scheduler: Any) -> None:
    """Restore model, optimizer and learning rate of this rank, each unless None, from another number of ranks' files.

    Random generators of ranks, which training does not use, stay as they are.
    """
    if module is not None:
        parts = _read(folder, "model", num_saved)
        module.load_state_dict(
            {name: _part(value, [part[name] for part in parts]) for name, value in module.state_dict().items()}
        )
    if optimizer is not None:
        parts = _read(folder, "optim", num_saved)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        moments = {
            index: {name: _part(parameters[index], [part["state"][index][name] for part in parts]) for name in values}
            for index, values in parts[0]["state"].items()
        }
        optimizer.load_state_dict({"state": moments, "param_groups": parts[0]["param_groups"]})
    if scheduler is not None:
        with torch.serialization.safe_globals(_NUMPY):
            scheduler.load_state_dict(_read(folder, "extra_state", num_saved, 1)[0]["lr_scheduler"])


def _read(folder: Path, what: str, num_saved: int, num_read: int | None = None) -> list[Mapping[Any, Any]]:
    paths = [folder / f"{what}_world_size_{num_saved}_rank_{rank}.pt" for rank in range(num_read or num_saved)]
    return [torch.load(path, map_location="cpu", weights_only=True, mmap=True) for path in paths]


def _part(like: Any, saved: Sequence[Any]) -> Any:
    """Return this rank's part, placed as `like` is, of a value whose parts are `saved`, or it whole if not sharded."""
    if not isinstance(saved[0], DTensor):
        return saved[0]
    mesh, placements = like.device_mesh, like.placements
    shape, offset = compute_local_shape_and_global_offset(like.shape, mesh, placements)
    local = torch.empty(shape, dtype=saved[0].dtype, device=like.device)
    for start, part in _distinct(saved):
        first, last = max(start, offset[0]), min(start + part.shape[0], offset[0] + shape[0])
        if first < last:
            local[first - offset[0] : last - offset[0]] = part[first - start : last - start]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=like.shape, stride=like.stride())


def _distinct(saved: Sequence[DTensor]) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the first row and the content of each rank's part; of copies (HSDP) those of the first ranks."""
    start = 0
    for value in saved[: saved[0].device_mesh.mesh.shape[-1]]:
        yield start, value.to_local()
        start += value.to_local().shape[0]
