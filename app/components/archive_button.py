"""Hides chosen runs from the list, or shows them again."""

from collections.abc import Sequence

import streamlit as st

from app import commands
from app.components import notice
from db.rows import RunRow


def show(rows: Sequence[RunRow]) -> None:
    """Show the button for the chosen runs and do what it says; without any, say how to choose some."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="archive-action"):
        if not rows:
            st.caption("Click a row to open it, tick rows to archive them", width="content")
            return
        is_back = all(row.is_archived for row in rows)
        noun = "1 run" if len(rows) == 1 else f"{len(rows):,} runs"
        if st.button(
            f"List {noun} again" if is_back else f"Archive {noun}",
            icon=":material/unarchive:" if is_back else ":material/archive:",
            key="archive",
            help=None if is_back else "Hidden from the list; files stay, and Archived shows them",
        ):
            _archive(rows, not is_back)


def _archive(rows: Sequence[RunRow], is_archived: bool) -> None:
    refused = []
    for row in rows:
        try:
            commands.archive(row.run_id, is_archived)
        except commands.CommandError as error:
            refused.append(str(error))
    if refused:
        notice.show("error", "Not archived", "\n".join(refused))
    if len(refused) < len(rows):
        st.toast("The list follows within a moment", icon=":material/check:")
