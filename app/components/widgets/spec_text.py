"""A specification as text: YAML, differences from another, and the shell command that starts it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

MAX_OPTIONS_IN_COMMAND = 12
_MAX_PLAIN = 200
"""Characters of a text that is written without quotes."""
WHOLE_VALUES = frozenset(
    {"mask_range", "reward_model", "sft", "environment", "benchmarks", "strategy_settings", "rewards"}
)
"""Mappings that are one value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that two specifications hold differently."""

    path: str
    before: object
    after: object


def flatten(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the fields by dotted path; ranges, lists and the like stay whole values."""
    fields: dict[str, object] = {}
    for name, value in content.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in WHOLE_VALUES:
            fields |= flatten(value, f"{path}.")
        else:
            fields[path] = value
    return fields


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[Difference]:
    """Return the fields in which `after` differs, in its order; the preset's name is not one."""
    old, new = flatten(before), flatten(after)
    return [
        Difference(path, old.get(path), value)
        for path, value in new.items()
        if path != "preset" and old.get(path) != value
    ]


def as_yaml(content: Mapping[str, object]) -> str:
    """Return the specification as YAML that `exgrpo train --spec` reads."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)


def shell_command(preset: str | None, changes: list[Difference]) -> str:
    """Return the command that starts the same run; with many changes, one that reads the downloaded file."""
    if len(changes) > MAX_OPTIONS_IN_COMMAND:
        return "exgrpo train --spec run.yaml"
    parts = ["exgrpo train"]
    if preset is not None:
        parts.append(f"--preset {shlex.quote(preset)}")
    parts += [f"--set {shlex.quote(f'{change.path}={option_text(change.after)}')}" for change in changes]
    return " \\\n  ".join(parts) if len(parts) > 2 else " ".join(parts)


def option_text(value: object) -> str:
    """Return a value as `--set` and addresses take it: as JSON, or text that both read as the same text."""
    return str(value) if isinstance(value, str) and _is_plain(value) else json.dumps(value, default=str)


def _is_plain(text: str) -> bool:
    """Whether YAML and JSON read the text as itself; with anchors, which can be slow to read, it is never asked."""
    if len(text) > _MAX_PLAIN or "&" in text:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return False
    try:
        return bool(yaml.safe_load(text) == text)
    except (yaml.YAMLError, ValueError, RecursionError):  # also an impossible date, and deep nesting
        return False
