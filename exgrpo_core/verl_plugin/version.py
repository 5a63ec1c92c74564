"""The version of verl that the plug-in is written for."""

from exgrpo_core.errors import EngineError

VERL_VERSION = "0.9.1"
"""The version whose methods the trainers override and whose registries the plug-in enters."""


def check_version(installed: str, remedy: str = f"install verl=={VERL_VERSION}") -> None:
    """Raise an `EngineError` with the remedy unless this is the version that the plug-in is written for."""
    if installed != VERL_VERSION:
        raise EngineError(f"verl: expected {VERL_VERSION}, got {installed}; {remedy}.")
