"""The workbench as one package.

`open_run` reads a run as frames, `recording` records a training loop of your own, and `grade_answer` grades an answer.

`exgrpo.app`, `exgrpo.jobs` and `exgrpo.db` are the folders of those names. What is named here loads on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exgrpo import recording as recording
    from exgrpo.jobs.queries.frames import RunFrames as RunFrames
    from exgrpo.jobs.queries.frames import open_run as open_run
    from exgrpo.jobs.tasks.grading.answer_grader import grade_answer as grade_answer

__all__ = ["RunFrames", "grade_answer", "open_run", "recording"]
_MODULES = {"grade_answer": "exgrpo.jobs.tasks.grading.answer_grader"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "recording":
        return import_module("exgrpo.recording")
    return getattr(import_module(_MODULES.get(name, "exgrpo.jobs.queries.frames")), name)


def __dir__() -> list[str]:
    return __all__
