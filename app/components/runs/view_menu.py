"""The menu of saved views: how curves are drawn and the charts of one's own, under a name, for any run."""

from collections.abc import Callable

import streamlit as st

from app import address, requests
from app.components.widgets import notice
from app.formats import literal

PARAMETERS = ("x", "smooth", "log", "charts", "metrics", "by")
"""What a view keeps of the address; not the runs, nor the part that is looked at."""


def show() -> None:
    """Show the menu; a click on a view writes it into the address."""
    refusal = st.session_state.pop("view-refusal", None)
    if refusal is not None:
        notice.show("error", "View not saved", refusal)
    with st.popover("Views", icon=":material/bookmarks:", key="saved-views"):
        views = requests.list_views()
        if fault := requests.find_view_fault():
            notice.show("warning", "Views cannot be read", fault)
        elif not views:
            st.caption("A view keeps axis, smoothing and your own charts under a name, for any run.")
        for number, (name, view) in enumerate(views.items()):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.button(
                    literal(name), key=f"view-{number}", type="tertiary", width="stretch", on_click=_open, args=(view,)
                )
                st.button(
                    "", icon=":material/delete:", key=f"view-delete-{number}", type="tertiary", help="Delete this view",
                    on_click=_do, args=(requests.delete_view, name),
                )  # fmt: skip
        name = st.text_input("Name", key="view-name", placeholder="Name of this view", label_visibility="collapsed")
        kept = {key: value for key in PARAMETERS if (value := st.query_params.get(key))}
        st.button(
            "Save this view", key="view-save", disabled=not name.strip(), width="stretch",
            on_click=_do, args=(requests.save_view, name.strip(), kept),
        )  # fmt: skip


def _open(view: dict[str, str]) -> None:
    address.put({**{key: view.get(key) for key in PARAMETERS}, "zoom": None})


def _do(command: Callable[..., None], *arguments: object) -> None:
    try:
        command(*arguments)
    except requests.UserError as error:
        st.session_state["view-refusal"] = str(error)
