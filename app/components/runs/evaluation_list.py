"""Evaluations that are queued, running, or ended without all of their scores."""

import streamlit as st

from app import commands
from app.components.widgets import status_badge
from app.formats import ago, escape_control_characters
from app.queries.benchmarks import broken_evaluations, list_scores, live_evaluations
from db.rows.runs import RunRow

REFRESH_SECONDS = 3


@st.fragment(run_every=REFRESH_SECONDS)
def show(num_scores: int, scheme: str) -> None:
    """Show the evaluations; the page reruns when there are new scores."""
    if len(list_scores(scheme)) != num_scores:
        st.rerun(scope="app")
    live, broken = live_evaluations(), broken_evaluations()
    if not live and not broken:
        return
    with st.container(border=True, gap="xsmall", key="evaluations"):
        st.markdown(f"**Evaluations** &nbsp; :gray[:small[{len(live):,} running]]")
        for row in [*live, *broken]:
            _row(row)


def _row(row: RunRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        status_badge.show(row)
        st.text(escape_control_characters(f"{row.model}: {row.dataset}"), width="content")
        st.space("stretch")
        progress = commands.job_progress(row.run_id) if row.status == "running" else None
        if progress is not None:
            done, total = progress
            st.progress(min(1.0, done / total) if total else 0.0, text=f"{done:,} of {total:,} questions", width=240)
        else:
            st.caption(ago(row.created_at), width="content")
        st.page_link("app_pages/run.py", label="Open", icon=":material/open_in_new:", query_params={"run": row.run_id})
    if row.status_reason:
        st.text(escape_control_characters(row.status_reason))
