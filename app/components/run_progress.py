"""How far a run is and how long it still takes."""

from db.rows import RunRow

LIVE_STATES = frozenset({"queued", "starting", "running", "stopping"})


def is_live(row: RunRow) -> bool:
    """Whether the run may still change by itself."""
    return row.status in LIVE_STATES


def fraction(row: RunRow) -> float:
    """Return the share of steps done, in [0, 1]."""
    return min(1.0, row.step / row.num_steps) if row.num_steps else 0.0


def seconds_left(row: RunRow) -> float | None:
    """Return the time that the remaining steps take at the recent pace; None unless the run is running."""
    if row.status != "running" or row.seconds_per_step is None:
        return None
    return (row.num_steps - row.step) * row.seconds_per_step
