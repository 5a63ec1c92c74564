"""How far a run is, how long it still takes, and what this session just asked of it."""

from dataclasses import dataclass
from datetime import UTC, datetime

import streamlit as st

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


_KEY = "asked-of-run"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; `seen` is the state in which the run was displayed then."""

    run_id: str
    seen: str
    words: str


def remember(row: RunRow, words: str) -> None:
    """Keep what was asked of a run, such as "Resuming"."""
    st.session_state[_KEY] = Asked(row.run_id, row.status, words)


def pending(row: RunRow) -> str | None:
    """Return what was asked of a run while the database still has its state from before, else None."""
    asked: Asked | None = st.session_state.get(_KEY)
    if asked is None or asked.run_id != row.run_id:
        return None
    if row.status == asked.seen and _status_by_files(row) != asked.seen:
        return asked.words
    del st.session_state[_KEY]
    return None


def _status_by_files(row: RunRow) -> str:
    try:
        return requests.status_by_files(row.run_id)
    except (requests.UserError, OSError):
        return row.status
