"""What every page has around it: the tab's title, who is signed in, the link to share, and the supervisor's state."""

from urllib.parse import urlencode, urlsplit

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.widgets import copied_text, notice
from exgrpo.app.formats import counted, duration, escape_control_characters
from exgrpo.app.queries.runs import SUPERVISOR_LOST_SECONDS
from exgrpo.app.settings import LOOPBACK_NAMES, current_person
from exgrpo.jobs.runs.state import newest_heartbeat


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


def show_share() -> None:
    """Show the menu in the sidebar with the link to what is on the page, on request one that also gives access."""
    menu = st.sidebar.popover("Copy link", icon=":material/link:", key="share", on_change="rerun", type="tertiary")
    if not menu.open:
        return
    here, token = settings.current(), settings.current().token
    parameters = [(name, value) for name in st.query_params for value in st.query_params.get_all(name)]
    with menu:
        if token is not None and st.toggle("With access", key="share-access", help="For people without the token"):
            parameters.append((settings.TOKEN_PARAMETER, token))
            power = "see everything here" if here.is_view else "do everything here, such as start programs"
            st.caption(
                f":material/warning: Anyone who has this link can {power}, as long as the workbench has this token."
            )
        else:
            by_token = "have signed in with the link of `exgrpo up`, or know the token"
            st.caption(f"This view, for people who {by_token if here.roles is None else 'sign in'}.")
        link = urlsplit(st.context.url or "")
        copied_text.show(link._replace(query=urlencode(parameters)).geturl(), "Copy the link", "copied-link")
        if link.hostname in LOOPBACK_NAMES:
            st.caption("The address is that of this machine: from another one, an SSH tunnel leads to it.")


def access_sentence() -> str:
    """Return one sentence on who may use this workbench."""
    if settings.current().is_view:
        return "A view: pages only read."
    if settings.current().roles is None:
        return "Single-user mode: anyone with the link has full access."
    return "People sign in; viewers look, operators start and stop runs and annotate, admins hide runs from the list."
