"""Checks settings against verl's generated configuration, in the interpreter of verl's environment.

`python -m jobs.engines.verl_ray.config_check [NAME]` reads a JSON list of KEY=VALUE overrides of verl's configuration
of that name, and writes a JSON object: `problems`, a sentence each, and `config`, verl's whole configuration with the
settings in it, null when there are problems. verl itself is not imported: the check then takes a second, since its
libraries are not loaded.
"""

import difflib
import importlib.util
import json
import logging
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONFIG_NAME = "ppo_trainer"
GROUPS = frozenset({"model_engine"})
"""Settings that choose a whole part of the configuration."""
_MISSING = object()
_NUMBER_FIELD = re.compile(r"^    (\w+): (?:Optional\[)?float", re.MULTILINE)


def config_folder() -> Path:
    """Return the folder of verl's configuration, without importing verl.

    Raises:
        ModuleNotFoundError: verl is not installed here.
    """
    module = importlib.util.find_spec("verl")
    if module is None or not module.submodule_search_locations:
        raise ModuleNotFoundError("verl is not installed in this environment")
    return Path(module.submodule_search_locations[0]) / "trainer" / "config"


def check(overrides: list[str], name: str = CONFIG_NAME) -> dict[str, Any]:
    """Return what is wrong with the settings, and the configuration that results if nothing is."""
    problems = []
    parsed: list[tuple[str, Override]] = []
    for text in overrides:
        try:
            parsed.append((text, OverridesParser.create().parse_override(text)))
        except HydraException as error:
            problems.append(f"{text}: is not KEY=VALUE as Hydra reads it ({_first_line(error)}).")
    with initialize_config_dir(str(config_folder()), version_base=None):
        try:
            base = _default_config(name, *(text for text, override in parsed if _is_group(override)))
            problems += [problem for _, override in parsed if (problem := find_problem(override, base))]
            if problems:
                return {"problems": problems, "config": None}
            config = compose(name, overrides=[text for text, _ in parsed])
            return {"problems": [], "config": OmegaConf.to_container(config, resolve=True)}
        except (HydraException, OmegaConfBaseException) as error:
            return {"problems": [*problems, f"verl's configuration: {_first_line(error)}."], "config": None}


def find_problem(override: Override, base: DictConfig) -> str:
    """Return one sentence on a setting whose key is unknown or whose value has another type, "" if there is none."""
    if _is_group(override):
        return ""
    key = override.key_or_group
    before = _select(base, key)
    if before is _MISSING:
        return "" if override.is_add() and _parent_exists(base, key) else _unknown(key, base)
    if override.is_delete():
        return ""
    value = override.value()
    is_number = key.rsplit(".", 1)[-1] in number_fields() and isinstance(before, int | float)
    if before is None or isinstance(before, DictConfig) or _fits(float(before) if is_number else before, value):
        return ""
    return f"{key}: expected {_describe(before)}, got {json.dumps(value, default=str)}."


@cache
def _default_config(name: str, *groups: str) -> DictConfig:
    """Return verl's configuration, within Hydra's context; cached, since tests check many settings in one process."""
    return compose(name, overrides=list(groups))


@cache
def number_fields() -> frozenset[str]:
    """Return the fields that verl's classes declare as numbers with a fraction; its YAML files write some as 0."""
    folder = config_folder()
    files = [*folder.glob("*.py"), *(folder.parents[1] / "workers" / "config").glob("*.py")]
    return frozenset(name for file in files for name in _NUMBER_FIELD.findall(file.read_text(encoding="utf-8")))


def all_keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield every key of the configuration by its dotted path."""
    for name in config:
        path = f"{prefix}{name}"
        yield path
        child = None if OmegaConf.is_missing(config, name) else config._get_node(name)
        if isinstance(child, DictConfig):
            yield from all_keys(child, f"{path}.")


def _is_group(override: Override) -> bool:
    return override.key_or_group in GROUPS or override.package is not None or "/" in override.key_or_group


def _select(config: DictConfig, key: str) -> Any:
    """Return the value at `key`; one that is missing (`???`) is None, which anything may replace."""
    *parents, name = key.split(".")
    section: Any = config
    for parent in parents:
        section = section._get_node(parent) if isinstance(section, DictConfig) and parent in section else None
    if not isinstance(section, DictConfig) or name not in section._content:
        return _MISSING
    return None if OmegaConf.is_missing(section, name) else section[name]


def _parent_exists(config: DictConfig, key: str) -> bool:
    """Whether a key to add is in a section that exists, which a misspelt one does not."""
    first, *rest = key.split(".")
    return first in config and (len(rest) < 2 or _select(config, f"{first}.{rest[0]}") is not _MISSING)


def _fits(before: object, value: object) -> bool:
    if isinstance(before, bool):
        return isinstance(value, bool)
    if isinstance(before, int):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(before, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(before, ListConfig):
        return isinstance(value, list | str)
    return isinstance(value, str | int | float | list) or not isinstance(before, str)


def _describe(before: object) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", ListConfig: "a list, such as [a,b]"}
    return f"{names.get(type(before), 'a text')} (verl's default is {before})"


def _unknown(key: str, base: DictConfig) -> str:
    keys = list(all_keys(base))
    below = [path for path in keys if path.endswith(f".{key}")]
    ends = {path.rsplit(".", 1)[-1]: path for path in reversed(keys)}
    similar = difflib.get_close_matches(key, keys, n=1, cutoff=0.8)
    by_end = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(ends), n=1, cutoff=0.6)
    nearest = next(iter([*below, *similar, *(ends[name] for name in by_end)]), None)
    hint = f"; did you mean {nearest}?" if nearest else "."
    return f"{key}: verl 0.9.1 has no such setting{hint}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def main() -> None:
    """Check the overrides of standard input and print the result."""
    logging.disable(logging.WARNING)
    sys.stdout.write(json.dumps(check(json.load(sys.stdin), *sys.argv[1:2])))


if __name__ == "__main__":
    main()
