"""Evaluations that are queued, running, or ended without all of their scores."""

from pathlib import PurePosixPath

import streamlit as st

from app import requests
from app.components.widgets import notice, status_badge
from app.formats import ago, escape_control_characters
from app.queries.benchmarks import broken_evaluations, list_scores, live_evaluations
from db.rows.runs import BROKEN_STATES, RunRow

REFRESH_SECONDS = 3
CHECK_SECONDS = 5
"""How often the list is read again while no evaluation is queued or running."""
UNNAMED = "evaluation"


def show(num_scores: int, scheme: str) -> None:
    """Show the evaluations; the page reruns when there are new scores."""
    is_live = bool(live_evaluations())
    st.fragment(_show, run_every=REFRESH_SECONDS if is_live else CHECK_SECONDS)(num_scores, scheme, is_live)


def _show(num_scores: int, scheme: str, was_live: bool) -> None:
    live, broken = live_evaluations(), broken_evaluations()
    if len(list_scores(scheme)) != num_scores or bool(live) != was_live:
        st.rerun(scope="app")
    if not live and not broken:
        return
    with st.container(border=True, gap="xsmall", key="evaluations"):
        st.markdown(f"**Evaluations** &nbsp; :gray[:small[{len(live):,} running]]")
        for row in [*live, *broken]:
            _row(row)


def _row(row: RunRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        status_badge.show(row)
        st.text(escape_control_characters(_title(row)), width="content")
        st.space("stretch")
        progress = requests.job_progress(row.run_id) if row.status == "running" else None
        if progress is not None:
            done, total = progress
            st.progress(min(1.0, done / total) if total else 0.0, text=f"{done:,} of {total:,} questions", width=240)
        else:
            st.caption(ago(row.created_at), width="content")
        st.page_link("app_pages/run.py", label="Open", icon=":material/open_in_new:", query_params={"run": row.run_id})
        is_broken = row.status in BROKEN_STATES
        if is_broken and st.button("Dismiss", key=f"dismiss-{row.run_id}", help="Archive it; Runs lists it on request"):
            _dismiss(row)
    if row.status_reason:
        st.text(escape_control_characters(row.status_reason))


def _title(row: RunRow) -> str:
    """Return the evaluation's name, and where it was given none its model and benchmarks."""
    if row.name != UNNAMED:
        return row.name
    path = PurePosixPath(row.model)
    return f"{path.name if path.is_absolute() else row.model} on {row.dataset}"


def _dismiss(row: RunRow) -> None:
    try:
        requests.archive(row.run_id, is_archived=True)
    except requests.CommandError as error:
        notice.show("error", "Not archived", str(error))
        return
    st.rerun()
