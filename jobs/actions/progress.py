"""Progress of a job of any kind, by its files."""

import json

from jobs.evaluation.recorded_answers import FOLDER, PLAN_FILE
from jobs.judging.plan import read_plan
from jobs.runs.attempts import read_heartbeat
from jobs.runs.directory import RunDirectory
from jobs.specs.judging import JudgeSpec
from jobs.specs.train import SpecError, TrainSpec


def count_pieces(run: RunDirectory) -> int | None:
    """Return the number of steps, questions or votes of a job; None while it is unknown."""
    spec = run.job_spec()
    if isinstance(spec, TrainSpec):
        return spec.num_steps
    if isinstance(spec, JudgeSpec):
        return read_plan(run)
    try:
        plan = json.loads((run.path / FOLDER / PLAN_FILE).read_text(encoding="utf-8"))
        return sum(int(count) for count in plan["num_questions"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def job_progress(run: RunDirectory) -> tuple[int, int] | None:
    """Return how many steps, questions or votes are done, and of how many; None while the total is unknown."""
    attempt = run.newest_attempt()
    try:
        total = count_pieces(run) if attempt else None
    except SpecError:
        return None
    heartbeat = read_heartbeat(run.attempt_path(attempt))
    return None if total is None else (heartbeat.step if heartbeat else 0, total)
