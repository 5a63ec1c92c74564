"""The index: a card for each figure and table, with its picture and the paper's result."""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import address, theme
from app.components.paper import method_overview
from app.components.paper.entries import ENTRIES, PARTS, Drawing, Entry
from app.components.paper.printed_figures import rows_of
from app.components.paper.run_selection import RunSelection
from app.queries.answers import ask
from app.queries.runs import metric_series
from app.theme import Palette
from db.queries import metrics
from db.rows.runs import MetricPoint

ADDRESS = "figure"
_COLUMNS = 4
_MAX_RUNS = 3
_TABLES = {Drawing.RULES: 6, Drawing.SETTINGS: 6, Drawing.CASES: 4}
Series = Mapping[str, Sequence[Sequence[MetricPoint]]]
"""The curves of each metric, one a run."""


def show(selection: RunSelection) -> None:
    """Show all cards, those of the appendix under a heading of their own."""
    series = series_of(selection)
    for part in PARTS:
        st.subheader(part, anchor=False)
        entries = [entry for entry in ENTRIES if entry.part == part]
        for start in range(0, len(entries), _COLUMNS):
            columns = st.columns(_COLUMNS, gap="small")
            for entry, column in zip(entries[start : start + _COLUMNS], columns, strict=False):
                with column:
                    _card(entry, series)


def series_of(selection: RunSelection) -> Series:
    """Return the curves that small pictures draw, of the first few runs."""
    keys = list(dict.fromkeys(entry.quantities[0] for entry in ENTRIES if entry.quantities))
    recorded = [key for key in keys if key != "held_out"]
    by_run = [
        metric_series(run_id, recorded) | {"held_out": _held_out(run_id)} for run_id in list(selection.rows)[:_MAX_RUNS]
    ]
    return {key: [series[key] for series in by_run if series[key]] for key in keys}


def picture(entry: Entry, series: Series, colours: Palette) -> str:
    """Return the small picture: of printed numbers where there are any, else of the runs, else a sketch."""
    rows = rows_of(entry)
    if rows:
        return method_overview.bars([row.value for row in rows], [row.is_ours for row in rows], colours)
    if entry.drawing is Drawing.METHOD:
        return method_overview.svg(colours)
    if entry.drawing in _TABLES:
        return method_overview.table(_TABLES[entry.drawing], colours)
    return method_overview.lines([curve for key in entry.quantities[:1] for curve in series.get(key, ())], colours)


def _held_out(run_id: str) -> list[MetricPoint]:
    rows = [row for row in ask(metrics.list_evaluations, run_id) if row.question_set == "held_out"]
    return [MetricPoint(row.step, row.avg_at_n) for row in rows]


def _card(entry: Entry, series: Series) -> None:
    with st.container(border=True, gap="xsmall", key=f"entry-{entry.key}", height="stretch"):
        st.html(method_overview.as_image(picture(entry, series, theme.palette()), f"{entry.label}: {entry.title}"))
        st.button(
            f"**{entry.label}** {entry.title}", key=f"paper-open-{entry.key}", type="tertiary", on_click=address.put,
            args=({ADDRESS: entry.key},),
        )  # fmt: skip
        st.caption(entry.finding)
