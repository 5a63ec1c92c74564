"""Who is signed in, where people sign in."""

import streamlit as st

from app import settings
from app.access import current_person
from app.components.widgets import notice
from app.formats import escape_control_characters


def show() -> None:
    """Show name, role and the sign-out button in the sidebar; stop the page for a person without a role."""
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


def access_sentence() -> str:
    """Return one sentence on who may use this workbench."""
    if settings.current().roles is None:
        return "Single-user mode: anyone with the link has full access."
    return "People sign in; viewers look, operators start and stop jobs and annotate, admins hide runs from the list."
