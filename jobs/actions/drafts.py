"""Drafts of new runs, which users keep under a name as YAML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.presets import read_mapping
from exgrpo.jobs.specs.train import SpecError, TrainSpec, clean_name, merge_settings
from exgrpo_core.durable_files import write_whole

DRAFTS_FOLDER = "drafts"
_MAX_FILE_BYTES = 240
"""File systems end names at 255 bytes, some of which a file that is being written adds."""


@needs(Role.OPERATOR)
def save_draft(runs_root: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Write a draft, replacing an older one of its name, and return its file, which `exgrpo train --spec` reads.

    Raises:
        SpecError: The name is not allowed for runs, or the folder cannot be written.
    """
    path = _path(runs_root, name)
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
    return path


@needs(Role.VIEWER)
def load_draft(runs_root: Path, name: str) -> dict[str, Any]:
    """Return a draft with every field; missing ones have their defaults.

    Raises:
        SpecError: There is no such draft, or it is not YAML.
    """
    return merge_settings(TrainSpec().model_dump(mode="json"), read_mapping(_path(runs_root, name)))


@needs(Role.VIEWER)
def list_drafts(runs_root: Path) -> list[str]:
    """Return the names of all drafts, sorted."""
    return sorted(path.stem for path in (runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER).glob("*.yaml"))


@needs(Role.OPERATOR)
def delete_draft(runs_root: Path, name: str) -> None:
    """Remove a draft if it exists.

    Raises:
        SpecError: The name is not allowed for drafts.
    """
    _path(runs_root, name).unlink(missing_ok=True)


def _path(runs_root: Path, name: str) -> Path:
    try:
        file = f"{clean_name(name)}.yaml"
    except ValueError as error:
        raise SpecError(f"{error}, got {name[:90]!r}.", "name") from None
    if len(file.encode()) > _MAX_FILE_BYTES:
        raise SpecError(
            f"expected a name of at most {_MAX_FILE_BYTES} bytes as a file, got {name!r}; shorten it.", "name"
        )
    return runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER / file
