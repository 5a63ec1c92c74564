"""The folder of models that are made or converted on this machine."""

import os
from pathlib import Path

CACHE_VARIABLE = "EXGRPO_CACHE_DIR"


def cache_directory() -> Path:
    """Return the folder of models made on this machine."""
    return Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "exgrpo-workbench"))
