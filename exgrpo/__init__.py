"""The workbench as one package: `open_run` reads a run as frames, `recording` records a training loop of your own.

`exgrpo.app`, `exgrpo.jobs` and `exgrpo.db` are the folders of those names. What is named here loads on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exgrpo import recording as recording
    from exgrpo.jobs.queries.frames import RunFrames as RunFrames
    from exgrpo.jobs.queries.frames import open_run as open_run

__all__ = ["RunFrames", "open_run", "recording"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("exgrpo.recording") if name == "recording" else getattr(_frames(), name)


def _frames() -> object:
    return import_module("exgrpo.jobs.queries.frames")


def __dir__() -> list[str]:
    return __all__
