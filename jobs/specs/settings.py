"""Changing single fields of a specification from `key=value` texts, as on a command line."""

from collections.abc import Iterable
from typing import Any, TypeVar

from exgrpo.db.rows.spec_fields import SYMBOLS
from exgrpo.jobs.specs.any_job import JobSpec, parse_any_spec
from exgrpo.jobs.specs.base import nearest_field
from exgrpo.jobs.specs.presets import load_plain_yaml
from exgrpo.jobs.specs.train import SpecError
from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import KINDS, find_part, part_numbers

AnySpec = TypeVar("AnySpec", bound=JobSpec)
_METHOD_SETTINGS = "algorithm.strategy_settings"
"""What has the settings that only a method knows; the checks of the whole specification refuse any others."""


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

    Settings of the chosen replay method are fields, too. Any other name is returned as it is.
    """
    end = name.lower().replace(" ", "_").replace("number_of_", "num_")
    paths = dict.fromkeys((*field_paths(content), *_method_settings(content)))
    ending = [path for path in paths if path == end or path.endswith(f".{end}")]
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


def _method_settings(content: dict[str, Any], origin: str = "") -> list[str]:
    """Return the paths of the settings that only the chosen parts of the replay method have.

    Raises:
        SpecError: A part cannot be loaded, if there is an `origin`.
    """
    algorithm = content.get("algorithm")
    if not isinstance(algorithm, dict):
        return []
    names: dict[str, Any] = {}
    for setting in KINDS.keys() & algorithm.keys():
        try:
            names |= part_numbers(find_part(setting, str(algorithm[setting])))
        except InputError as error:
            if origin:
                raise SpecError(f"{origin} algorithm.{setting}: {error}") from error
    return [f"{_METHOD_SETTINGS}.{name}" for name in names if name not in algorithm]


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
    is_of_a_method = parents == _METHOD_SETTINGS.split(".")
    if not isinstance(section, dict) or (name not in section and not is_of_a_method):
        of_method = _method_settings(content, "" if parents else origin)
        fields = [path for path in field_paths(content) if not _is_section(content, path)] + of_method
        raise SpecError(f"{origin} {key}: there is no such field; {nearest_field(fields, key)}")
    section[name] = value


def _is_section(content: dict[str, Any], path: str) -> bool:
    for name in path.split("."):
        content = content[name]
    return isinstance(content, dict)
