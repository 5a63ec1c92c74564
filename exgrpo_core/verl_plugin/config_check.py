"""Composes verl's configuration with overrides, in the interpreter of verl's environment.

`python -m exgrpo_core.verl_plugin.config_check` reads a JSON list of KEY=VALUE overrides of verl's configuration, and
writes a JSON object: `problem`, a sentence on a setting that verl does not have or "", `config`, verl's whole
configuration with the settings in it, and `notice`, a sentence on verl's version or "". verl itself is not imported:
that takes seconds.
"""

import importlib.metadata
import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from exgrpo_core.verl_plugin.settings import server_mistake, version_notice

CONFIG_NAME = "ppo_trainer"


def config_folder() -> Path:
    """Return the folder of verl's configuration, without importing verl.

    Raises:
        ModuleNotFoundError: verl is not installed here.
    """
    module = importlib.util.find_spec("verl")
    if module is None or not module.submodule_search_locations:
        raise ModuleNotFoundError("verl is not installed in this environment")
    return Path(module.submodule_search_locations[0]) / "trainer" / "config"


def check(overrides: list[str]) -> dict[str, Any]:
    """Return the configuration that the settings give, or what is wrong with one of them."""
    with initialize_config_dir(str(config_folder()), version_base=None):
        try:
            config: Any = OmegaConf.to_container(compose(CONFIG_NAME, overrides=overrides), resolve=True)
            return {"problem": server_mistake(config, importlib.metadata.version("verl")), "config": config}
        except (HydraException, OmegaConfBaseException) as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
            return {"problem": f"verl's configuration: {first_line}.", "config": None}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    found = check(json.load(sys.stdin))
    sys.stdout.write(json.dumps(found | {"notice": version_notice(importlib.metadata.version("verl"))}))
