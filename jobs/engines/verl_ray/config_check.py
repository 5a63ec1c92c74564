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
_MISSING = object()
_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a number", (int, float)),
    float: ("a number", (int, float)),
    ListConfig: ("a list, such as [a,b]", (list, str)),
    str: ("a text", (str, int, float, list)),
}
"""What may take the place of a default of each type."""


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
    with initialize_config_dir(str(config_folder()), version_base=None):
        try:
            parsed = OverridesParser.create().parse_overrides(overrides)
            defaults = _defaults(name)
            problems = [problem for override in parsed if (problem := find_problem(override, defaults))]
            if problems:
                return {"problems": problems, "config": None}
            config = compose(name, overrides=overrides)
            return {"problems": [], "config": OmegaConf.to_container(config, resolve=True)}
        except (HydraException, OmegaConfBaseException) as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
            return {"problems": [f"verl's configuration: {first_line}."], "config": None}


def find_problem(override: Override, defaults: DictConfig) -> str:
    """Return one sentence on a setting whose key is unknown or whose value has another type, "" if there is none."""
    key = override.key_or_group
    default = _select(defaults, key)
    if default is _MISSING:
        return "" if override.is_add() else _unknown(key, defaults)
    expected, allowed = _KINDS.get(type(default), ("", ()))
    if not expected or type(override.value()) in allowed:
        return ""
    value = json.dumps(override.value(), default=str)
    return f"{key}: expected {expected} (verl's default is {default}), got {value}."


@cache
def _defaults(name: str) -> DictConfig:
    """Return verl's configuration, within Hydra's context; cached, since tests check many settings in one process."""
    return compose(name)


def _select(config: DictConfig, key: str) -> Any:
    """Return the value at `key`; one that is missing (`???`) is None, which anything may replace."""
    *parents, name = key.split(".")
    section: Any = config
    for parent in parents:
        section = section._get_node(parent) if isinstance(section, DictConfig) and parent in section else None
    if not isinstance(section, DictConfig) or name not in section._content:
        return _MISSING
    return None if OmegaConf.is_missing(section, name) else section[name]


def _unknown(key: str, config: DictConfig) -> str:
    keys = list(_all_keys(config))
    below = [path for path in keys if path.endswith(f".{key}")]
    nearest = [*below, *difflib.get_close_matches(key, keys, n=1, cutoff=0.8)]
    hint = f"; did you mean {nearest[0]}?" if nearest else "."
    return f"{key}: verl 0.9.1 has no such setting{hint}"


def _all_keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield every key of the configuration by its dotted path."""
    for name in config:
        yield f"{prefix}{name}"
        child = None if OmegaConf.is_missing(config, name) else config._get_node(name)
        if isinstance(child, DictConfig):
            yield from _all_keys(child, f"{prefix}{name}.")


def main() -> None:
    """Check the overrides of standard input and print the result."""
    logging.disable(logging.WARNING)
    sys.stdout.write(json.dumps(check(json.load(sys.stdin), *sys.argv[1:2])))


if __name__ == "__main__":
    main()
