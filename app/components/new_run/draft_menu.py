"""Drafts: saved forms of new runs, complete or not."""

import streamlit as st

from app import requests
from app.components.widgets import notice
from app.formats import literal
from app.requests import SpecError

ADDRESS = "draft"
_SAVE_ERROR = "draft-error"


def show_save(content: dict[str, object]) -> None:
    """Show the button that keeps the form under the run's name."""
    st.button(
        "Save as draft", icon=":material/save:", width="stretch", key="save-draft", on_click=_save, args=(content,)
    )
    error = st.session_state.pop(_SAVE_ERROR, None)
    if error:
        notice.show("error", "Not saved", error)


def _save(content: dict[str, object]) -> None:
    name = str(content.get("name", ""))
    try:
        requests.save_draft(name, content)
    except SpecError as error:
        st.session_state[_SAVE_ERROR] = str(error)
    else:
        st.toast(f"Saved as {literal(name)}", icon=":material/check:")


def show_list() -> str | None:
    """Show a menu of the saved drafts; return the one to open."""
    names = requests.list_drafts()
    chosen = None
    error = ""
    with st.popover(f"Drafts ({len(names)})" if names else "Drafts", icon=":material/draft:", key="drafts"):
        if not names:
            st.caption("None yet: **Save as draft** keeps a form under the run's name.")
        for name in names:
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                if st.button(literal(name), key=f"open-draft-{name}", type="tertiary", icon=":material/edit:"):
                    chosen = name
                if st.button("Delete", key=f"delete-draft-{name}", type="tertiary", icon=":material/delete:"):
                    error = _delete(name)
                    if not error:
                        st.rerun()
        if error:
            notice.show("error", "Not deleted", error)
    return chosen


def _delete(name: str) -> str:
    """Delete a draft; return the error, empty on success."""
    try:
        requests.delete_draft(name)
    except SpecError as error:
        return str(error)
    return ""
