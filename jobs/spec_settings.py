"""Changing single fields of a specification from `key=value` words, as on a command line."""

import difflib
from collections.abc import Iterable
from typing import Any

import yaml

from jobs.specs import SpecError, TrainSpec, parse_spec


def apply_settings(spec: TrainSpec, settings: Iterable[str]) -> TrainSpec:
    """Return `spec` with each `field.path=value` set; values are read as YAML.

    Raises:
        SpecError: A word without `=`, an unknown field (the nearest one is named), or a value that does not fit.
    """
    content = spec.model_dump(mode="json")
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise SpecError(f"--set {setting}: expected key=value, such as num_steps=200.")
        _set_field(content, key.strip(), _read_value(key, text))
    return parse_spec(content, "--set")


def field_paths(spec: TrainSpec) -> list[str]:
    """Return every field of the specification as a dotted path, in order."""
    return list(_paths(spec.model_dump(mode="json"), ""))


def _paths(content: dict[str, Any], prefix: str) -> Iterable[str]:
    for name, value in content.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


def _read_value(key: str, text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise SpecError(f"--set {key}: {text!r} is not a YAML value; put quotes around text.") from None


def _set_field(content: dict[str, Any], key: str, value: object) -> None:
    *parents, name = key.split(".")
    place: Any = content
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if not isinstance(place, dict) or name not in place:
        raise SpecError(f"--set {key}: there is no such field{_nearest(content, key)}.")
    place[name] = value


def _nearest(content: dict[str, Any], key: str) -> str:
    paths = list(_paths(content, ""))
    ends = {path.rsplit(".", 1)[-1]: path for path in reversed(paths)}
    found = difflib.get_close_matches(key, paths, n=1, cutoff=0.5)
    by_end = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(ends), n=1, cutoff=0.6)
    name = ends[by_end[0]] if by_end else (found[0] if found else None)
    return f"; did you mean {name}" if name else "; `exgrpo presets --json` shows all fields"
