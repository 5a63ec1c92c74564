"""The actions on ticked runs of the list: compare them, archive them, or list them again."""

from collections.abc import Sequence

import streamlit as st

from app import commands
from app.components.runs import runs_choice
from app.components.runs.comparison import MAX_RUNS
from app.components.widgets import notice
from db.rows.runs import RunRow


def show_compare(rows: Sequence[RunRow]) -> None:
    """Show the link for the ticked training runs; it waits for two to twenty."""
    run_ids = [row.run_id for row in rows if row.kind == "train"]
    # A link, since a page that is switched to from a part that refreshes by itself may lose a race with the refresh.
    st.page_link(
        "app_pages/compare.py",
        label=f"Compare {len(run_ids)} runs" if len(run_ids) > 1 else "Compare",
        icon=":material/compare_arrows:",
        disabled=not 2 <= len(run_ids) <= MAX_RUNS,
        query_params=runs_choice.parameters(run_ids),
        help=f"Tick two to {MAX_RUNS} training runs to see them side by side",
    )


def show_archive(rows: Sequence[RunRow]) -> None:
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
