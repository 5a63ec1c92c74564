"""Says when the database is away, and renews the page once it is back."""

import streamlit as st

from app import queries
from app.components.widgets import notice
from app.formats import duration
from app.queries import last_answers

_WAS_AWAY = "database-was-away"


@st.fragment(run_every=2)
def show() -> None:
    """Warn while the database is away: pages show the last good answers, with their age."""
    reason = queries.reason_away()
    if reason:
        st.session_state[_WAS_AWAY] = True
        age = last_answers.age_seconds()
        last_read = "Nothing was read yet." if age is None else f"Last data {duration(age)} ago."
        notice.show("warning", "Database away", f"{last_read} This page reloads once the database is back. {reason}")
    elif st.session_state.pop(_WAS_AWAY, False):
        st.rerun(scope="app")
