"""What every page has around it: the title of the tab, who is signed in, and whether a supervisor runs."""

import streamlit as st

from app import settings
from app.components.widgets import notice
from app.formats import counted, duration, escape_control_characters
from app.queries.runs import SUPERVISOR_LOST_SECONDS
from app.settings import current_person
from jobs.runs.supervisor_file import newest_heartbeat


@st.fragment(run_every=5)
def show_supervisor() -> None:
    """Say when no supervisor runs or it still reads ended runs, so that pages may be old; a view has none."""
    if settings.current().is_view:
        return
    heartbeat = newest_heartbeat(settings.runs_root())
    if heartbeat is None:
        notice.show(
            "warning",
            "No supervisor yet",
            "No supervisor has run in this folder, so queued runs do not start. Start one with `exgrpo up`.",
        )
    elif (age := heartbeat.age_seconds) > SUPERVISOR_LOST_SECONDS:
        notice.show(
            "warning",
            "Supervisor not running",
            f"Last seen {duration(age)} ago. Active runs continue, but queued ones do not start and these figures may "
            "be old. Start it again with `exgrpo up`.",
        )
    elif heartbeat.num_unread:
        notice.show(
            "info",
            "Reading runs into the database",
            f"Still to read: {counted(heartbeat.num_unread, 'ended run')}. Until then, pages may lack data and show "
            "ended runs as queued or running.",
        )


WORKBENCH = "ExGRPO Workbench"


def show_title(page: str, run_name: str | None = None) -> None:
    """Name the tab after the page, or after the run that it shows."""
    parts = [escape_control_characters(run_name)] if run_name else []
    st.set_page_config(page_title=" · ".join([*parts, page, WORKBENCH]))


def show_person() -> None:
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
    if settings.current().is_view:
        return "A view: pages only read."
    if settings.current().roles is None:
        return "Single-user mode: anyone with the link has full access."
    return "People sign in; viewers look, operators start and stop runs and annotate, admins hide runs from the list."
