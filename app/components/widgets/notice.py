"""A framed message: what happened, and what to do. Its text is plain text, but for commands between backticks."""

from typing import Literal

import streamlit as st

from app.formats import escape_control_characters, with_code

Kind = Literal["error", "warning", "info"]

_ICONS = {
    "error": ":red[:material/error:]",
    "warning": ":orange[:material/warning:]",
    "info": ":blue[:material/info:]",
}


def show(kind: Kind, title: str, text: str) -> None:
    """Show `text`, which may come from outside, under a `title` that the workbench chooses."""
    with st.container(border=True, key=f"notice-{kind}-{title.lower().replace(' ', '-')}", gap="xxsmall"):
        st.markdown(f"{_ICONS[kind]} **{title}**")
        if "`" in text:
            st.markdown(with_code(text).replace("\n", "  \n"))
        elif text:
            st.text(escape_control_characters(text))
