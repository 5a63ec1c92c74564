"""What stands where there is nothing yet."""

import streamlit as st


def show(icon: str, title: str, text: str, command: str | None = None) -> None:
    """Show why nothing is here and what brings something; `command` is a shell command that does."""
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
    """Say that the address names a run that is not there, and where those stand that are."""
    show(
        "search_off",
        "No such run",
        "The address names a run that is not in this workbench. Choose one under **Runs**, where archived ones can be "
        "shown, too.",
    )
