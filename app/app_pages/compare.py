"""Two to twenty runs side by side: curves, settings that differ, scores."""

from collections.abc import Sequence

import streamlit as st

from app.components.runs import (
    comparison,
    comparison_charts,
    comparison_costs,
    comparison_tables,
    run_progress,
    runs_choice,
)
from app.components.runs.comparison import Group
from app.components.widgets import empty_state
from app.queries.answers import ask
from db.queries import runs

REFRESH_SECONDS = 4
BY_RUN, BY_GROUP = "Runs", "Mean over seeds"


def _choices() -> tuple[str, str, Sequence[str]]:
    """Show the choice of the x axis, of runs or groups, and of more curves; return it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        axis = st.segmented_control(
            "Against", list(comparison_charts.AXES), default="Steps", required=True, key="x", bind="query-params",
            label_visibility="collapsed",
        )  # fmt: skip
        by = st.segmented_control(
            "Curves of", [BY_RUN, BY_GROUP], default=BY_RUN, required=True, key="by", bind="query-params",
            label_visibility="collapsed",
            help="Runs whose settings differ by seed only become one curve: their mean, with a band of all",
        )  # fmt: skip
        more = st.multiselect(
            "More curves", comparison_charts.MORE, key="metrics", bind="query-params", placeholder="More metrics",
            label_visibility="collapsed", width="stretch", select_all=False,
        )  # fmt: skip
    return axis, by, more


def _show(run_ids: Sequence[str], names: dict[str, str], axis: str, by: str, more: Sequence[str]) -> None:
    rows = {run_id: row for run_id in run_ids if (row := ask(runs.get_run, run_id)) is not None}
    specs = {run_id: ask(runs.run_spec, run_id) for run_id in rows}
    groups = comparison.groups({run_id: names[run_id] for run_id in rows}, specs)
    is_by_group = by == BY_GROUP
    curves = groups if is_by_group else [Group(names[run_id], (run_id,)) for run_id in rows]
    comparison_charts.show(curves, comparison_charts.AXES[axis], more)
    comparison_tables.show_results(curves, rows, is_by_group)
    comparison_costs.show(list(rows.values()))
    comparison_tables.show_differences(names, specs)


with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Compare", anchor=False, width="content")
chosen = runs_choice.show()
if len(chosen) < 2:
    empty_state.show(
        "compare_arrows", "Choose two runs or more", "Choose them above, or tick them under **Runs** and press Compare."
    )
else:
    refresh = REFRESH_SECONDS if any(run_progress.is_live(row) for row, _ in chosen.values()) else None
    against, curves_of, metrics = _choices()
    names_by_id = {run_id: name for run_id, (_, name) in chosen.items()}
    st.fragment(_show, run_every=refresh)(list(chosen), names_by_id, against, curves_of, metrics)
