"""The first look at a model before a run is queued: taken by a program of its own, remembered by the model's files."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from exgrpo.jobs.machine.hardware import GB
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.pretrained.model_shapes import CONFIG_FILE, model_file, model_shape
from exgrpo.jobs.training.pretrained.sources import cache_directory, find_package
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_json
from exgrpo_core.durable_files import write_whole

_PROGRAM = "exgrpo.jobs.training.engines.embedded.first_look"
_SECONDS = 300.0
_BYTES_PER_WEIGHT = 4.5
"""Float32 as it is loaded, and some room."""


class FirstLook(NamedTuple):
    """What was found, in one sentence; a model that is not good cannot be trained."""

    is_good: bool
    sentence: str


def look_folder(spec: TrainSpec) -> Path | None:
    """Return the folder of a specification's model, if all of it is on this machine, whose engine is to train it."""
    path = model_file(spec.model.source, CONFIG_FILE, spec.model.revision)
    if spec.engine != "embedded" or path is None:
        return None
    is_of_hub = not Path(spec.model.source).exists() and find_package(spec.model.source) is None
    return None if is_of_hub and not _is_whole(path.parent) else path.parent


def _is_whole(folder: Path) -> bool:
    """Return whether all weights of a model of the hub were downloaded."""
    index = folder / "model.safetensors.index.json"
    try:
        names = set(read_json(index)["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    except (OSError, UnreadableFileError, KeyError, TypeError, AttributeError):
        return False
    return all((folder / str(name)).is_file() for name in names)


@needs(Role.OPERATOR)
def first_look(spec: TrainSpec) -> FirstLook | None:
    """Return what the look found, of minutes for large models; None of a model elsewhere, or for verl."""
    remembered, folder = remembered_look(spec), look_folder(spec)
    if remembered is not None or folder is None:
        return remembered
    shape = model_shape(spec.model.source, spec.model.revision)
    num_bytes = 0 if shape is None else int(_BYTES_PER_WEIGHT * shape.parameters)
    is_large = num_bytes > psutil.virtual_memory().available
    command = [sys.executable, "-P", "-m", _PROGRAM, str(folder), *(["files"] if is_large else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except subprocess.SubprocessError as error:
        return FirstLook(True, f"{folder}: could not be looked at ({error}).")
    found = done.stdout.splitlines()[-1]
    if is_large:
        return _look(spec, {"bytes": num_bytes} | parse_json(found))
    look = _look(spec, parse_json(found))
    if look.is_good:  # another version of a package, or more memory, may fix what is not
        path = _path_of(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, found.encode())
    return look


def remembered_look(spec: TrainSpec) -> FirstLook | None:
    """Return what an earlier look at the same files found, at once; None where there was none, or it was not good."""
    folder = look_folder(spec)
    if folder is None:
        return None
    try:
        look = _look(spec, read_json(_path_of(folder)))
    except (OSError, UnreadableFileError):
        return None
    return look if look.is_good else None


def _look(spec: TrainSpec, found: dict[str, Any]) -> FirstLook:
    if "error" in found:
        return FirstLook(False, str(found["error"]))
    if "bytes" in found:
        why = f"they need about {found['bytes'] / GB:.0f} GB of memory, and are looked at when the run starts"
        return FirstLook(True, f"{spec.model.source}: architecture and files looked at, not the weights: {why}.")
    gap = f"sampled and scored log-probs differ by {found['gap']:.2g} nats in the mean"
    return FirstLook(True, f"{spec.model.source}: looked at; {gap}.")


def _path_of(folder: Path) -> Path:
    """Return where a look is remembered, under digits that change with the folder's files."""
    states = ((path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file())
    files = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    digits = hashlib.sha256(repr((str(folder.resolve()), files)).encode()).hexdigest()[:16]
    return cache_directory() / "first_looks" / f"{digits}.json"
