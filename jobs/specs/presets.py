"""YAML that users hand in, and presets: YAML files of changed fields, which may extend one another."""

import difflib
import re
from collections.abc import Collection, Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import yaml
from yaml.reader import ReaderError

from exgrpo.jobs.specs.base import SpecError
from exgrpo_core.bounded_json import LONG_NUMBER, UnreadableFileError, read_plain
from exgrpo_core.errors import shown

MAX_YAML_BYTES = 1 << 16
"""More than the size of any specification; YAML is read at some hundred kilobytes a second."""

PRESETS_DIR = Path(__file__).with_name("presets")
_GROUPS = {
    "chains": "built-in task",
    "word_problems": "built-in task",
    "examples": "your data",
    "paper": "the paper",
}
"""What the presets of each folder are for, in the order in which they are offered."""


_NOT_YAML = "is not YAML or JSON; look for an open bracket or quotation mark, a tab, a wrong indent, or `: ` in a text"


class _RefusedError(yaml.MarkedYAMLError):
    """YAML that is not read, in words of ours."""


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without anchors: an alias repeats what it names, so a few of them make a text of any size.

    What YAML 1.1 reads as something else than people write stays text: 12:30 (750), 010 (8), 0x10, no, 2026-01-01. What
    a field cannot take is then refused by its name. All that `yaml.safe_dump` writes is read as it was.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node, as the base class does."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
            raise _RefusedError(problem="anchors, aliases and tags are not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping, as the base class does; it would take the last of a field that appears twice."""
        names: set[object] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _RefusedError(problem="expected a text as the name", problem_mark=key.start_mark)
            if key.value in names:
                problem = f"{key.value} appears twice; keep one of them"
                raise _RefusedError(problem=problem, problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number, as the base class does."""
        try:
            return super().construct_yaml_int(node)
        except ValueError:
            raise _RefusedError(problem=LONG_NUMBER, problem_mark=node.start_mark) from None


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)

_PlainLoader.yaml_implicit_resolvers = {"": [("tag:yaml.org,2002:null", re.compile(r"\Z"))]}
for _type, _pattern, _first in (
    ("null", "~|null|Null|NULL", "~nN"),
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    for _character in _first:
        _PlainLoader.yaml_implicit_resolvers.setdefault(_character, []).append(
            (f"tag:yaml.org,2002:{_type}", re.compile(rf"(?:{_pattern})\Z"))
        )


def load_plain_yaml(text: str | bytes, origin: str) -> Any:  # noqa: ANN401 - any YAML value
    """Return the value of YAML or JSON that a user handed in, in time that its size bounds.

    Raises:
        SpecError: It is larger than `MAX_YAML_BYTES`, has anchors or aliases, or is not YAML; begins with `origin`.
    """
    if len(text) > MAX_YAML_BYTES:
        raise SpecError(f"{origin}: expected at most {MAX_YAML_BYTES:,} bytes of YAML, got {len(text):,}.")
    try:
        return _PlainLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{origin}: line {mark.line + 1}, column {mark.column + 1}" if mark else origin
        problem = error.problem if isinstance(error, _RefusedError) else _NOT_YAML
        raise SpecError(f"{place}: {problem}.") from None
    except ReaderError as error:
        raise SpecError(f"{origin}: position {error.position}: {error.reason}; write plain text in UTF-8.") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise SpecError(f"{origin}: {_NOT_YAML}.") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the fields of a YAML or JSON file.

    Raises:
        SpecError: The file is missing, is not plain YAML or JSON, or holds no mapping.
    """
    try:
        text = read_plain(path, MAX_YAML_BYTES, "give a YAML or JSON file")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); give a YAML or JSON file.") from None
    except UnreadableFileError as error:
        raise SpecError(str(error)) from None
    content = load_plain_yaml(text, str(path))
    if not isinstance(content, dict):
        raise SpecError(f"{path}: expected a mapping of fields at the top, got {shown(content)}.")
    return content


def preset_names() -> list[str]:
    """Return the names of all presets by group; those of a group that extend no other come first."""
    return list(_preset_files())


@cache
def _preset_files() -> dict[str, Path]:
    folders = list(_GROUPS)
    ordered = sorted(
        (folders.index(path.parent.name), "\nextends:" in path.read_text(encoding="utf-8"), path.stem, path)
        for path in PRESETS_DIR.glob("*/*.yaml")
    )
    return {name: path for *_, name, path in ordered}


def preset_group(name: str) -> str:
    """Return what a preset is for: a built-in task, the user's data or the paper."""
    return _GROUPS[_preset_files()[name].parent.name]


def preset_exists(name: object) -> TypeGuard[str]:
    """Return whether there is a preset of this name."""
    return isinstance(name, str) and name in _preset_files()


def preset_description(name: str) -> str:
    """Return the first comment line of a preset's file: one sentence on what it is."""
    return _preset_files()[name].read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def preset_content(name: object) -> dict[str, Any]:
    """Return the fields of a preset, those of the preset that it extends included.

    Raises:
        SpecError: No such preset; the message names the most similar one, if any.
    """
    if not preset_exists(name):
        nearest = [f"the nearest is {known}, " for known in difflib.get_close_matches(str(name), preset_names(), n=1)]
        raise SpecError(f"there is no {name!r}; {''.join(nearest)}`exgrpo query presets` lists all.", "preset")
    content: dict[str, Any] = yaml.safe_load(_preset_files()[name].read_text(encoding="utf-8"))
    base = content.pop("extends", None)
    return content if base is None else merge_settings(preset_content(base), content)


def with_preset(content: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return fields of a specification with those of the preset that `extends` names.

    `preset` names it, too, unless all `fields` are there, as in a specification that the workbench wrote.

    Raises:
        SpecError: There is no such preset.
    """
    changes = {name: value for name, value in content.items() if name != "extends"}
    base = content.get("extends", None if changes.keys() >= {*fields} else content.get("preset"))
    return changes if base is None else {**merge_settings(preset_content(base), changes), "preset": base}


def merge_settings(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `changes`, merged mapping by mapping."""
    merged = dict(base)
    for key, value in changes.items():
        current = merged.get(key)
        is_nested = isinstance(current, Mapping) and isinstance(value, Mapping)
        merged[key] = merge_settings(current, value) if is_nested and current is not None else value
    return merged
