"""Changing single fields of a specification from `key=value` texts, as on a command line."""

from collections.abc import Iterable
from typing import Any, TypeVar

from exgrpo.db.rows.spec_fields import SYMBOLS
from exgrpo.jobs.specs.any_job import JobSpec, parse_any_spec
from exgrpo.jobs.specs.base import nearest_field
from exgrpo.jobs.specs.presets import load_plain_yaml
from exgrpo.jobs.specs.train import SpecError

AnySpec = TypeVar("AnySpec", bound=JobSpec)


def apply_settings(spec: AnySpec, settings: Iterable[str], origin: str = "--set") -> AnySpec:
    """Return `spec` with each `field.path=value` set; values are read as YAML, refusals begin with `origin`.

    A field may be named as `full_path` takes it.

    Raises:
        SpecError: A text without `=`, an unknown field (the nearest one is named), or a wrong value.
    """
    content = spec.model_dump(mode="json")
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise SpecError(f"{origin} {setting}: expected key=value, such as num_steps=200.")
        _set_field(content, full_path(content, key.strip()), _read_value(key, text, origin), origin)
    changed = parse_any_spec(content, origin)
    if not isinstance(changed, type(spec)):
        raise SpecError(f"{origin} kind: expected {spec.kind}, got {changed.kind}; a job keeps its kind.")
    return changed


def full_path(content: dict[str, Any], name: str) -> str:
    """Return the path of the field that a name means: a symbol (`mu`), a label or the end of a path that only one has.

    Any other name is returned as it is.
    """
    end = name.lower().replace(" ", "_").replace("number_of_", "num_")
    ending = [path for path in field_paths(content) if path == end or path.endswith(f".{end}")]
    if name in ending:
        return name
    symbol = SYMBOLS.get(name, SYMBOLS.get(end))
    return symbol or (ending[0] if len(ending) == 1 else name)


def field_paths(content: dict[str, Any], prefix: str = "") -> Iterable[str]:
    """Yield every field of a specification's content as a dotted path, in order; a section before its fields."""
    for name, value in content.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from field_paths(value, f"{prefix}{name}.")


def _read_value(key: str, text: str, origin: str) -> object:
    try:
        return load_plain_yaml(text, key)
    except SpecError:
        raise SpecError(f"{origin} {key}: {text[:80]!r} is not a YAML value; put quotes around text.") from None


def _set_field(content: dict[str, Any], key: str, value: object, origin: str) -> None:
    *parents, name = key.split(".")
    section: Any = content
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    if parents == ["algorithm", "strategy_settings"] and isinstance(section, dict) and name not in section:
        entries = ", ".join(f"{field}: {entry}" for field, entry in {**section, name: value}.items())
        whole = ".".join(parents)
        raise SpecError(f"{origin} {key}: {whole} is set as a whole; write '{whole}={{{entries}}}'.")
    if not isinstance(section, dict) or name not in section:
        fields = [path for path in field_paths(content) if not _is_section(content, path)]
        raise SpecError(f"{origin} {key}: there is no such field; {nearest_field(fields, key)}")
    section[name] = value


def _is_section(content: dict[str, Any], path: str) -> bool:
    for name in path.split("."):
        content = content[name]
    return isinstance(content, dict)
