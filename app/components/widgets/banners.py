"""The warning on every page that the supervisor does not answer."""

import streamlit as st

from app.components.widgets import notice
from app.formats import duration
from app.queries.workbench import SUPERVISOR_LOST_SECONDS, supervisor_age_seconds


@st.fragment(run_every=5)
def show() -> None:
    """Warn when no supervisor runs: queued runs do not start, and pages may show old data."""
    age = supervisor_age_seconds()
    if age is None:
        notice.show(
            "warning",
            "No supervisor yet",
            "No supervisor has run in this folder, so queued runs do not start. Start one with: exgrpo up",
        )
    elif age > SUPERVISOR_LOST_SECONDS:
        notice.show(
            "warning",
            "Supervisor not running",
            f"Last seen {duration(age)} ago. Running jobs continue, but queued ones do not start and these figures may "
            "be old. Start it again with: exgrpo up",
        )
