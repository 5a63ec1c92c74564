"""The number of votes of a judge's job, stored for progress bars."""

import json

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
        text = (run.attempt_path(run.newest_attempt()) / _PLAN_FILE).read_text(encoding="utf-8")
        return int(json.loads(text)["num_votes"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
