"""The warnings on every page that the database or the supervisor is away."""

import streamlit as st

from app.components.widgets import notice
from app.formats import duration
from app.queries import last_answers
from app.queries.runs import reason_away
from app.queries.workbench import SUPERVISOR_AWAY_SECONDS, supervisor_age_seconds

_WAS_AWAY = "database-was-away"


@st.fragment(run_every=2)
def show_database() -> None:
    """Warn while the database is away: pages show the last good answers, with their age."""
    reason = reason_away()
    if reason:
        st.session_state[_WAS_AWAY] = True
        age = last_answers.age_seconds()
        last_read = "Nothing was read yet." if age is None else f"Last data {duration(age)} ago."
        notice.show("warning", "Database away", f"{last_read} This page reloads once the database is back. {reason}")
    elif st.session_state.pop(_WAS_AWAY, False):
        st.rerun(scope="app")


@st.fragment(run_every=5)
def show_supervisor() -> None:
    """Warn when the supervisor is away: queued runs do not start, and what pages show may be old."""
    age = supervisor_age_seconds()
    if age is None:
        notice.show(
            "warning",
            "No supervisor yet",
            "No supervisor has run in this folder, so queued runs do not start. Start one with: exgrpo up",
        )
    elif age > SUPERVISOR_AWAY_SECONDS:
        notice.show(
            "warning",
            "Supervisor away",
            f"Last seen {duration(age)} ago. Running jobs continue, but queued ones do not start and these figures may "
            "be old. Start it again with: exgrpo up",
        )
