"""How much there is to judge, where whoever shows the progress finds it."""

import json

from jobs.runs.directory import RunDirectory

_PLAN_FILE = "plan.json"


def write_plan(run: RunDirectory, num_votes: int) -> None:
    """Note in the newest attempt's folder how many votes the job is for."""
    path = run.attempt_path(run.newest_attempt()) / _PLAN_FILE
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps({"num_votes": num_votes}), encoding="utf-8")
    unfinished.replace(path)


def read_plan(run: RunDirectory) -> int | None:
    """Return how many votes the job is for, None while that is not known."""
    try:
        text = (run.attempt_path(run.newest_attempt()) / _PLAN_FILE).read_text(encoding="utf-8")
        return int(json.loads(text)["num_votes"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
