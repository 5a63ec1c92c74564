"""The number of votes of a judge's job, stored for progress bars."""

import json

from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from jobs.runs.directory import RunDirectory

_PLAN_FILE = "plan.json"


def write_plan(run: RunDirectory, num_votes: int) -> None:
    """Write the job's number of votes into the newest attempt's folder."""
    path = run.attempt_path(run.newest_attempt()) / _PLAN_FILE
    write_whole(path, json.dumps({"num_votes": num_votes}))


def read_plan(run: RunDirectory) -> int | None:
    """Return the job's number of votes, None while it is unknown."""
    try:
        return int(read_json(run.attempt_path(run.newest_attempt()) / _PLAN_FILE)["num_votes"])
    except (OSError, ValueError, LookupError, TypeError, OverflowError):
        return None
