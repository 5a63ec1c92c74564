"""Leads from ticked runs to the page that compares them."""

from collections.abc import Sequence

import streamlit as st

from app.components.runs import runs_choice
from app.components.runs.comparison import MAX_RUNS
from db.rows.runs import RunRow


def show(rows: Sequence[RunRow]) -> None:
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
