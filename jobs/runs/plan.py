"""How many questions or votes a job has, for displays of its progress."""

import json
from collections.abc import Mapping
from pathlib import Path

from exgrpo_core.bounded_json import UnreadableFileError, read_sealed, seal
from exgrpo_core.durable_files import write_whole

PLAN_FILE = "plan.json"


def write_plan(folder: Path, plan: Mapping[str, object]) -> None:
    """Write `num_votes`, or `num_questions` of each benchmark, into a folder of a job."""
    write_whole(folder / PLAN_FILE, seal(json.dumps(plan).encode()))


def read_plan(folder: Path) -> int:
    """Return the number of questions or votes.

    Raises:
        UnreadableFileError: The file differs from what was written.
        OSError: It is missing or cannot be read.
    """
    plan = read_sealed(folder / PLAN_FILE)
    try:
        numbers = [plan["num_votes"]] if "num_votes" in plan else list(plan["num_questions"].values())
        if any(int(number) < 0 for number in numbers):
            raise ValueError
        return sum(map(int, numbers))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise UnreadableFileError(f"{folder / PLAN_FILE}: expected numbers of questions or votes.") from None
