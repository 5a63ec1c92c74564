"""How every benchmark ends: one JSON line with its figures, its targets and which of them it met."""

import json
import math
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Figure = float | int | str | bool | None

COMMIT = "commit"
"""The figure that says at which commit a result was measured, with `+` where files were changed since."""
LOAD = "load_average"
"""The figure that every result has: processes that wanted the machine's cores in the minute before it began."""

_LOAD_AT_START = os.getloadavg()[0]
"""Taken when a benchmark's program is imported: later it would count the benchmark's processes."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}


def meets(figure: Figure, target: str) -> bool:
    """Whether a figure meets a target such as ">= 3.0"; a figure that is no finite number never does.

    Raises:
        ValueError: The target is not an operator (>=, <=, >, <, ==), a space and a number.
    """
    sign, _, limit = target.strip().partition(" ")
    try:
        compare, bound = _COMPARISONS[sign], float(limit)
    except (KeyError, ValueError):
        raise ValueError(f'target: expected an operator and a number such as ">= 3.0", got {target!r}.') from None
    if isinstance(figure, str) or figure is None or not math.isfinite(figure):
        return False
    return compare(float(figure), bound)


def report(bench: str, figures: Mapping[str, Figure], targets: Mapping[str, str]) -> bool:
    """Print the last line, `{"bench", "figures", "targets", "met"}`, and return whether every target was met.

    A line for each target missed goes before it. Figures are rounded to six significant digits, and the machine's load
    average before the benchmark began is added to them.

    Args:
        bench: Name of the benchmark, as in `python -m bench.<name>`.
        figures: What was measured; the unit is part of the key (`step_ms`).
        targets: Keys of `figures` with what they should be, such as ">= 3.0" or "<= 8.0".

    Raises:
        ValueError: A target names no figure, or cannot be read.
    """
    unknown = sorted(set(targets) - set(figures))
    if unknown:
        raise ValueError(f"targets: expected keys of figures, got {', '.join(unknown)}.")
    missed = [key for key, target in targets.items() if not meets(figures[key], target)]
    for key in missed:
        sys.stdout.write(f"missed: {key} = {figures[key]}, target {targets[key]}\n")
    line = {
        "bench": bench,
        "figures": {
            key: _rounded(value) for key, value in {**figures, LOAD: _LOAD_AT_START, COMMIT: _commit()}.items()
        },
        "targets": dict(targets),
        "met": not missed,
    }
    sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
    sys.stdout.flush()
    return not missed


def _commit() -> str | None:
    """Return the short name of the commit that is measured; None outside of a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _rounded(figure: Figure) -> Figure:
    if not isinstance(figure, float):
        return figure
    return float(f"{figure:.6g}") if math.isfinite(figure) else None
