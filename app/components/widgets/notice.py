"""A framed message: what happened, and what to do. Its text is plain text, but for commands between backticks."""

from typing import Literal

import streamlit as st

from app.formats import escape_control_characters, with_code
from db.rows.runs import RunRow
from db.rows.spec_fields import UNREADABLE_KIND

Kind = Literal["error", "warning", "info"]

_ICONS = {"error": ":red[:material/error:]", "warning": ":orange[:material/warning:]", "info": ":blue[:material/info:]"}


def show(kind: Kind, title: str, text: str) -> None:
    """Show `text`, which may come from outside, under a `title` that the workbench chooses."""
    with st.container(border=True, key=f"notice-{kind}-{title.lower().replace(' ', '-')}", gap="xxsmall"):
        st.markdown(f"{_ICONS[kind]} **{title}**")
        if "`" in text:
            st.markdown(with_code(text).replace("\n", "  \n"))
        elif text:
            st.text(escape_control_characters(text))


def show_unreadable_settings(row: RunRow) -> None:
    """Show what is unknown and how to fix it; nothing for other runs."""
    if row.has_settings:
        return
    is_known = row.kind != UNREADABLE_KIND
    shown = "What it recorded is shown." if is_known else "It recorded nothing that says what kind of job it is."
    show(
        "warning",
        "Settings cannot be read",
        f"spec.json of this run is damaged or missing. {shown}\n"
        "Copy spec.json from a backup, or from a run with the same name and settings. Then end `exgrpo up`, run "
        "`exgrpo db rebuild` and start `exgrpo up` again.",
    )
