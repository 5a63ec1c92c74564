"""What this session just asked of a run, displayed until the database knows it."""

from dataclasses import dataclass

import streamlit as st

from app import requests
from db.rows.runs import RunRow

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
    if row.status == asked.seen and _status(row) != asked.seen:
        return asked.words
    del st.session_state[_KEY]
    return None


def _status(row: RunRow) -> str:
    try:
        return requests.status_by_files(row.run_id)
    except (requests.UserError, OSError):
        return row.status
