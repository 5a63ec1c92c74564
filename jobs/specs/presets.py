"""Presets: YAML files of changed fields, which may extend one another."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from jobs.specs.mistakes import SpecError

PRESETS_DIR = Path(__file__).parents[1] / "presets"
RENAMED = {
    "chains-authors-code": "chains-released-selection",
    "paper-authors-code": "paper-released-selection",
}
"""Former names, which specifications and commands may still say."""


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*/*.yaml"))


def current_name(name: str) -> str:
    """Return what a preset of this name, which may be a former one, is called now."""
    return RENAMED.get(name, name)


def preset_exists(name: object) -> TypeGuard[str]:
    """Return whether there is a preset of this name, or was one that is called otherwise now."""
    return isinstance(name, str) and current_name(name) in preset_names()


def preset_description(name: str) -> str:
    """Return the first comment line of a preset's file: one sentence on what it is."""
    return _preset_file(name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def preset_content(name: object) -> dict[str, Any]:
    """Return the fields of a preset, those of the preset that it extends included.

    Raises:
        SpecError: No such preset; the message names the most similar one, if any.
    """
    if not preset_exists(name):
        nearest = [f"the nearest is {known}, " for known in difflib.get_close_matches(str(name), preset_names(), n=1)]
        raise SpecError(f"preset: there is no {name!r}; {''.join(nearest)}`exgrpo presets` lists all.")
    content: dict[str, Any] = yaml.safe_load(_preset_file(name).read_text(encoding="utf-8"))
    base = content.pop("extends", None)
    return content if base is None else merge_settings(preset_content(base), content)


def merge_settings(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `changes`, merged mapping by mapping."""
    merged = dict(base)
    for key, value in changes.items():
        current = merged.get(key)
        is_nested = isinstance(current, Mapping) and isinstance(value, Mapping)
        merged[key] = merge_settings(current, value) if is_nested and current is not None else value
    return merged


def _preset_file(name: str) -> Path:
    return next(PRESETS_DIR.glob(f"*/{current_name(name)}.yaml"))
