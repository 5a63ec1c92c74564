"""Several runs side by side: curves on one axis, groups that differ by seed only, and settings that differ."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from app.components.widgets.curve_view import Line
from app.components.widgets.spec_text import flatten
from db.rows.spec_fields import is_unreadable

SEED_FIELDS = frozenset({"seed", "algorithm.seed"})
_NOT_SETTINGS = frozenset({"name", "tags", "preset", "kind", "is_unreadable"})
_GRID_POINTS = 200


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by seed only."""

    name: str
    run_ids: tuple[str, ...]


def groups(names: Mapping[str, str], specs: Mapping[str, Mapping[str, object]]) -> list[Group]:
    """Return the runs of `names` (by id) in groups of equal settings, seeds aside, in order of their first run."""
    by_settings: dict[str, list[str]] = {}
    for run_id in names:
        # Whether settings that cannot be read are equal is unknown.
        key = run_id if is_unreadable(specs[run_id]) else _settings(specs[run_id])
        by_settings.setdefault(key, []).append(run_id)
    members = list(by_settings.values())
    names_of_groups = [_shared_name([names[run_id] for run_id in run_ids]) for run_ids in members]
    return [
        Group(name if names_of_groups.count(name) == 1 else f"{name} ({number})", tuple(run_ids))
        for number, (name, run_ids) in enumerate(zip(names_of_groups, members, strict=True), start=1)
    ]


def differing(specs: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the fields in which specifications differ, each with its value in every run that has it."""
    flat = {run_id: flatten(spec) for run_id, spec in specs.items()}
    paths = dict.fromkeys(path for fields in flat.values() for path in fields if path not in _NOT_SETTINGS)
    values_by_path: dict[str, dict[str, object]] = {}
    for path in paths:
        values = {run_id: fields.get(path) for run_id, fields in flat.items()}
        if len({repr(value) for value in values.values()}) > 1:
            values_by_path[path] = values
    return values_by_path


def mean_line(lines: Sequence[Line]) -> Line | None:
    """Return the mean of several curves with their least and largest value, over the range that all of them cover."""
    lines = [line for line in lines if line.x.size]
    if not lines:
        return None
    if len(lines) == 1:
        return lines[0]
    start, end = max(line.x[0] for line in lines), min(line.x[-1] for line in lines)
    positions = np.unique(np.concatenate([line.x for line in lines]))
    grid = positions[(positions >= start) & (positions <= end)]
    if grid.size > _GRID_POINTS:
        grid = np.linspace(start, end, _GRID_POINTS, dtype=np.float32)
    values = np.stack([np.interp(grid, line.x, line.y) for line in lines]).astype(np.float32)
    return Line(grid.astype(np.float32), values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return mean and sample standard deviation of the known values; no deviation of fewer than two."""
    known = np.array([value for value in values if value is not None and np.isfinite(value)], dtype=np.float64)
    if not known.size:
        return None, None
    return float(known.mean()), float(known.std(ddof=1)) if known.size > 1 else None


def _settings(spec: Mapping[str, object]) -> str:
    fields = {path: value for path, value in flatten(spec).items() if path not in SEED_FIELDS | _NOT_SETTINGS}
    return repr(sorted(fields.items()))


def _shared_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    alike = takewhile(lambda characters: len(set(characters)) == 1, zip(*names, strict=False))
    shared = re.sub(r"[\s,._+@(-]*(?:seed)?[\s,._+@(-]*$", "", "".join(characters[0] for characters in alike))
    return shared or names[0]
