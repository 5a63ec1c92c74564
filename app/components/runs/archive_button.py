"""Hides chosen runs from the list, or shows them again."""

from collections.abc import Sequence

import streamlit as st

from app import commands
from app.components.widgets import notice
from db.rows.runs import RunRow


def show(rows: Sequence[RunRow]) -> None:
    """Show the button that archives or lists the ticked runs; it is disabled without any."""
    is_back = bool(rows) and all(row.is_archived for row in rows)
    noun = "1 run" if len(rows) == 1 else f"{len(rows):,} runs"
    if st.button(
        f"{'List' if is_back else 'Archive'} {noun}{' again' if is_back else ''}" if rows else "Archive",
        icon=":material/unarchive:" if is_back else ":material/archive:",
        disabled=not rows,
        key="archive",
        help="Tick runs to hide them from this list; their files stay, and **Archived** shows them",
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
        st.toast("Saved", icon=":material/check:")
