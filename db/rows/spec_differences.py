"""Fields in which two specifications differ."""

from collections.abc import Mapping
from dataclasses import dataclass

WHOLE_VALUES = frozenset(
    {"mask_range", "lora", "reward_model", "sft", "environment", "benchmarks", "strategy_settings", "rewards"}
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
