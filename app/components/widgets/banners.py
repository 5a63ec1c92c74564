"""The warnings on every page that the database or the supervisor does not answer."""

import streamlit as st

from app.components.widgets import notice
from app.formats import duration
from app.queries import last_answers
from app.queries.runs import unavailable_reason
from app.queries.workbench import SUPERVISOR_LOST_SECONDS, supervisor_age_seconds

_WAS_UNAVAILABLE = "database-was-unavailable"


@st.fragment(run_every=5)
def show() -> None:
    """Show the warnings that apply: each time that a fragment asks, the browser goes through the whole page."""
    _show_database()
    _show_supervisor()


def _show_database() -> None:
    """Warn while the database does not answer: pages show its last answers, with their age."""
    reason = unavailable_reason()
    if reason:
        st.session_state[_WAS_UNAVAILABLE] = True
        age = last_answers.age_seconds()
        last_read = "Nothing was read yet." if age is None else f"Last data {duration(age)} ago."
        notice.show(
            "warning", "Database unavailable", f"{last_read} This page reloads once the database is back. {reason}"
        )
    elif st.session_state.pop(_WAS_UNAVAILABLE, False):
        st.rerun(scope="app")


def _show_supervisor() -> None:
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
