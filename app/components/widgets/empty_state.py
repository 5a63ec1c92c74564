"""The text on a page or card that has no content yet."""

import streamlit as st

from db.rows.runs import RunRow


def show(icon: str, title: str, text: str, command: str | None = None) -> None:
    """Show why there is no content and how to get some; `command` is a shell command for that."""
    with st.container(
        border=True, key=f"empty-{title.lower().replace(' ', '-')}", horizontal_alignment="center", gap="small"
    ):
        st.space("small")
        st.markdown(f"## :primary[:material/{icon}:]", text_alignment="center", width="content")
        st.subheader(title, anchor=False, text_alignment="center")
        st.markdown(text, text_alignment="center")
        if command:
            st.code(command, language="bash", width="content")
        st.space("small")


def show_no_such_run() -> None:
    """Show that the run of the address does not exist, and where existing runs are listed."""
    show(
        "search_off",
        "No such run",
        "The address names a run that is not in this workbench. Choose one under **Runs**; it lists "
        "archived ones, too.",
    )


def show_no_replay(row: RunRow) -> None:
    """Show the reason in place of what a run that replays would show."""
    if row.is_adopted:
        show("help", "Unknown", "This run was adopted from verl's rollout dumps, which hold texts and scores only.")
    else:
        show("replay", "No replay buffer", "This run is on-policy: it stores and replays nothing.")
