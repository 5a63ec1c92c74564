"""The warning that no supervisor is running."""

import streamlit as st

from app import queries
from app.components.widgets import notice
from app.formats import duration


@st.fragment(run_every=5)
def show() -> None:
    """Warn when the supervisor is away: queued runs do not start, and what pages show may be old."""
    age = queries.supervisor_age_seconds()
    if age is None:
        notice.show(
            "warning",
            "No supervisor yet",
            "No supervisor has run in this folder, so queued runs do not start. Start one with: exgrpo up",
        )
    elif age > queries.SUPERVISOR_AWAY_SECONDS:
        notice.show(
            "warning",
            "Supervisor away",
            f"Last seen {duration(age)} ago. Running jobs continue, but queued ones do not start and these figures may "
            "be old. Start it again with: exgrpo up",
        )
