"""Who is signed in, where people sign in."""

import streamlit as st

from app import settings
from app.access import current_person
from app.components.widgets import notice
from app.formats import escape_control_characters


def show() -> None:
    """Show name, role and the way out in the sidebar; a session of nobody known ends here."""
    if settings.current().roles is None:
        return
    person = current_person()
    with st.sidebar:
        if person is not None:
            st.text(f"{escape_control_characters(person.name)}, {person.role.name.lower()}")
        st.button("Sign out", icon=":material/logout:", key="sign-out", type="tertiary", on_click=st.logout)
    if person is None:
        notice.show("warning", "Nobody is signed in", "Sign out and in again under the address that you signed in at.")
        st.stop()


def explain() -> str:
    """Return one sentence on who may use this workbench."""
    if settings.current().roles is None:
        return "Nobody signs in here: whoever has the printed link with its token may do everything."
    return "People sign in; viewers look, operators start and stop jobs and annotate, admins hide runs from the list."
