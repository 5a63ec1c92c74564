"""How many files and functions of the project one thing enters: what a reader must follow to understand it.

Run `python -m bench.walks`. `step` is one step of ExGRPO with replay on register chains, the embedded engine's work
included; `core` counts the files of `exgrpo_core` alone.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bench.chains_run import open_chains_run
from bench.report import report

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "db", "exgrpo_core", "jobs")
NUM_STEPS_BEFORE = 10
"""Steps in which the buffer fills."""
TARGETS = {"step_files": "<= 35"}


def walk(action: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (file, function) of all that an action enters, in this thread; imports are done before."""
    entered: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    inside = [(Path(file), name) for file, name in entered if file.startswith(f"{ROOT}/")]
    found = {(str(file.relative_to(ROOT)), name) for file, name in inside}
    return {(file, name) for file, name in found if file.split("/")[0] in PACKAGES}


def main() -> None:
    """Print the files of a step with the number of functions in each, and the last line."""
    with open_chains_run("chains-exgrpo") as run:
        for _ in range(NUM_STEPS_BEFORE):
            run.step()
        entered = walk(run.step)
    files = sorted({file for file, _ in entered})
    for path in files:
        print(f"{sum(file == path for file, _ in entered):4} {path}")
    in_core = sum(path.startswith("exgrpo_core/") for path in files)
    report("walks", {"step_files": len(files), "core_files": in_core, "step_functions": len(entered)}, TARGETS)


if __name__ == "__main__":
    main()
