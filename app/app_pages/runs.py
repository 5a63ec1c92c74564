"""All runs: their state, progress and scores."""

import streamlit as st

from app import queries
from app.components import empty_state, run_progress, run_table
from db.rows import RunRow

FILTERS = {
    "All": lambda row: True,  # noqa: ARG005 - every run passes
    "Active": run_progress.is_live,
    "Finished": lambda row: row.status == "succeeded",
    "Failed or lost": lambda row: row.status in {"failed", "lost"},
    "Stopped": lambda row: row.status == "stopped",
}


def _matches(row: RunRow, search: str) -> bool:
    text = " ".join([row.name, row.method, row.model, row.dataset, row.run_id, *row.tags]).casefold()
    return all(word in text for word in search.casefold().split())


@st.fragment(run_every=2)
def _list() -> None:
    rows = queries.list_runs()
    if not rows:
        empty_state.show(
            "replay",
            "No runs yet",
            "Set up your first one under **New run**, or let the demo train with ExGRPO and with on-policy Dr.GRPO.",
            "exgrpo demo",
        )
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        search = st.text_input(
            "Search runs",
            placeholder="Search name, method, model, tag",
            key="q",
            bind="query-params",
            label_visibility="collapsed",
            icon=":material/search:",
            width=300,
        )
        chosen = st.segmented_control(
            "State",
            list(FILTERS),
            default="All",
            required=True,
            key="state",
            bind="query-params",
            label_visibility="collapsed",
        )
    num_runs = queries.count_runs()
    shown = [row for row in rows if FILTERS[chosen](row) and _matches(row, search)]
    if not shown:
        empty_state.show("filter_alt_off", "No run matches", "Clear the search or choose another state.")
        return
    num_active = sum(num_runs.get(state, 0) for state in run_progress.LIVE_STATES)
    st.caption(f"{len(shown):,} of {sum(num_runs.values()):,} runs shown, {num_active:,} active")
    opened = run_table.show(shown, "runs-table")
    if opened is not None:
        st.switch_page("app_pages/run.py", query_params={"run": opened})


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("Runs", anchor=False, width="content")
    if st.button("New run", icon=":material/add:", type="primary", key="to-new-run"):
        st.switch_page("app_pages/new_run.py")
_list()
