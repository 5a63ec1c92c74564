"""What the runs of a study have in common, what tells its cells apart, and with what they were made."""

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.studies.results import CellResult

_PACKAGES = ("exgrpo-workbench", "torch", "transformers", "numpy", "verl", "vllm")
_OWN_TO_A_RUN = frozenset({"name", "tags", "seed", "algorithm.seed", "model.warm_seed", "preset"})
_NOT_SET = "(not set)"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Fields of specifications as dotted paths, with their values in words."""

    common: dict[str, str]
    by_cell: dict[str, dict[str, str]]
    """For each cell, the fields in which cells differ."""
    unequal: tuple[str, ...]
    """Sentences on cells whose runs differ in more than the seed."""


def read_configuration(cells: tuple[CellResult, ...]) -> Configuration:
    """Return what the finished runs were asked for, as their specifications recorded it."""
    specs = {result.cell.name: [_flat(seed.spec) for seed in result.seeds] for result in cells if result.seeds}
    everything = [fields for spec in specs.values() for fields in spec]
    names = sorted({name for fields in everything for name in fields} - _OWN_TO_A_RUN)
    values = {name: {fields.get(name, _NOT_SET) for fields in everything} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    return Configuration(
        common={name: next(iter(values[name])) for name in names if len(values[name]) == 1},
        by_cell={
            cell: {name: " or ".join(sorted({fields.get(name, _NOT_SET) for fields in item})) for name in differing}
            for cell, item in specs.items()
        },
        unequal=tuple(
            f"{cell}: its runs differ in {name}, so its interval is not over seeds alone."
            for cell, entry in specs.items()
            for name in differing
            if len({fields.get(name, _NOT_SET) for fields in entry}) > 1
        ),
    )


def read_versions() -> dict[str, str]:
    """Return the versions of this machine's Python, of the packages that matter, and its processor."""
    versions = {"Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            fields |= _flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = "none" if value is None else str(value)
    return fields
