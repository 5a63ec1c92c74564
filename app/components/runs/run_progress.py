"""How far a run is and how long it still takes."""

from datetime import UTC, datetime

from app import requests
from app.formats import as_utc
from db.rows.runs import LIVE_STATES, RunRow


def is_live(row: RunRow) -> bool:
    """Whether the run may still change by itself."""
    return row.status in LIVE_STATES


def fraction(row: RunRow) -> float:
    """Return the share done of a run's steps, of an evaluation's questions or of a judge's votes, in [0, 1]."""
    done, total = pieces(row)
    return max(0.0, min(1.0, done / total)) if total else float(row.status == "finished")


def pieces(row: RunRow) -> tuple[int, int]:
    """Return how many steps, questions or votes are done, and of how many; 0 of 0 before they are counted."""
    if row.kind == "train":
        return row.step, row.num_steps
    return requests.job_progress(row.run_id) or (0, 0)


def seconds_left(row: RunRow) -> float | None:
    """Return the remaining time at the pace so far; None unless the run is running."""
    if row.status != "running":
        return None
    if row.kind == "train":
        if row.seconds_per_step is None or not row.num_steps:
            return None
        return (row.num_steps - row.step) * row.seconds_per_step
    done, total = pieces(row)
    if not done or row.started_at is None:
        return None
    return (datetime.now(UTC) - as_utc(row.started_at)).total_seconds() / done * (total - done)
