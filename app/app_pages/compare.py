"""Two to twenty runs side by side: curves, settings that differ, scores."""

from collections.abc import Sequence

import streamlit as st

from exgrpo.app.components.runs import comparison, comparison_tables
from exgrpo.app.components.runs.comparison import Group
from exgrpo.app.components.widgets import (
    address_choice,
    data_table,
    figures,
    notice,
    own_charts,
    run_choice,
    run_state,
)
from exgrpo.app.components.widgets.curve_view import CurveView
from exgrpo.app.components.widgets.own_charts import OwnChart
from exgrpo.app.formats import literal
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import whole_curves
from exgrpo.db.queries import runs
from exgrpo_core.step_report import METRIC_LABELS

REFRESH_SECONDS = 4
BY_RUN, BY_GROUP = "Runs", "Mean over seeds"


def _choices() -> tuple[CurveView, list[OwnChart], str, Sequence[str]]:
    view, charts = own_charts.choose()
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        by = st.segmented_control(
            "Curves of", [BY_RUN, BY_GROUP], default=BY_RUN, required=True, key="by", bind="query-params",
            label_visibility="collapsed",
            help="Draw runs that differ only in their seed as one curve: the mean, with a band from minimum to maximum",
        )  # fmt: skip
        labels = {key: METRIC_LABELS[key] for key in comparison.MORE}
        more = address_choice.select_several("More metrics", labels, "metrics", (), "More metrics", "collapsed")
    return view, charts, by, more


def _show(run_ids: Sequence[str], names: dict[str, str]) -> None:
    rows = {run_id: row for run_id in run_ids if (row := ask(runs.get_run, run_id)) is not None}
    specs = {run_id: ask(runs.run_spec, run_id) for run_id in rows}
    view, charts, by, more = _choices()
    groups = comparison.groups({run_id: names[run_id] for run_id in rows}, specs)
    is_by_group = by == BY_GROUP
    curves = groups if is_by_group else [Group(names[run_id], (run_id,)) for run_id in rows]
    with st.container():  # so that what is below keeps its place
        ends = comparison.describe_ends(groups, {key: row.step for key, row in rows.items()}) if is_by_group else ()
        for sentence in ends:
            st.caption(literal(sentence))
    is_recorded = all(row.is_recorded for row in rows.values())
    keys = comparison.recorded_keys([*rows]) if is_recorded else comparison.KEYS
    shown = list(dict.fromkeys([*keys[: figures.NUM_OPEN], *more]))
    comparison.show(curves, view, shown, charts, folded=[key for key in keys if key not in shown])
    data_table.export(lambda: whole_curves(list(rows)), "curves", formats=data_table.WHOLE_FORMATS, label="All steps")
    comparison_tables.show_results(curves, rows, is_by_group, keys if is_recorded else ())
    if not is_recorded:
        comparison_tables.show_costs(rows, names)
    comparison_tables.show_differences(names, specs)


with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Compare", anchor=False, width="content")
chosen = run_choice.choose_compared()
if len(chosen) < 2:
    notice.show_empty(
        "compare_arrows", "Choose two runs or more", "Choose them above, or tick them under **Runs** and press Compare."
    )
else:
    refresh = REFRESH_SECONDS if any(run_state.is_live(row) for row, _ in chosen.values()) else None
    names_by_id = {run_id: name for run_id, (_, name) in chosen.items()}
    st.fragment(_show, run_every=refresh)(list(chosen), names_by_id)
