"""Specifications that are not launched yet: one YAML file each in the workbench's folder, valid or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from exgrpo_core.checksums import seal_yaml
from exgrpo_core.durable_files import write_whole
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.specs.presets import read_mapping
from jobs.specs.train import NAME_PATTERN, SpecError, TrainSpec, merge_settings

DRAFTS_FOLDER = "drafts"


def save_draft(runs_root: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Write a draft, replacing an older one of its name, and return its file, which `exgrpo train --spec` reads.

    Raises:
        SpecError: The name is not allowed for runs, or the folder cannot be written.
    """
    path = _path(runs_root, name)
    text = seal_yaml(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
    return path


def load_draft(runs_root: Path, name: str) -> dict[str, Any]:
    """Return a draft with every field; missing ones have their defaults.

    Raises:
        SpecError: There is no such draft, it differs from what was saved, or it is not YAML.
    """
    return merge_settings(TrainSpec().model_dump(mode="json"), read_mapping(_path(runs_root, name)))


def list_drafts(runs_root: Path) -> list[str]:
    """Return the names of all drafts, sorted."""
    return sorted(path.stem for path in (runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER).glob("*.yaml"))


def delete_draft(runs_root: Path, name: str) -> None:
    """Remove a draft if it exists.

    Raises:
        SpecError: The name is not allowed for drafts.
    """
    _path(runs_root, name).unlink(missing_ok=True)


def _path(runs_root: Path, name: str) -> Path:
    if NAME_PATTERN.fullmatch(name) is None:
        raise SpecError(
            "name: expected letters, digits, spaces and . _ + @ -, at most 80, a letter or digit first, got "
            f"{name[:90]!r}."
        )
    return runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER / f"{name}.yaml"
