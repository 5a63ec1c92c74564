"""What the paper prints of an entry: its picture as bars, and its table."""

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from app import paper_and_studies, theme
from app.components.paper.entries import Drawing, Entry
from app.components.studies import study_results
from app.components.widgets import data_table, figures
from app.paper_and_studies import PaperTable

_PER_ROW = 26
_WORDS = ("Group", "Row", "Cells here")
_MARGIN = 1.15


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row's printed number; `is_ours` marks rows of ExGRPO as the paper recommends it."""

    group: str
    name: str
    value: float
    text: str
    is_ours: bool


def tables_of(entry: Entry) -> Iterator[PaperTable]:
    """Yield the printed tables of an entry, as far as studies hold their rows."""
    for name in (entry.study, *entry.others):
        if entry.table:
            yield from (table for table in paper_and_studies.load_study(name).tables if table.name == entry.table)


def rows_of(entry: Entry) -> list[PrintedRow]:
    """Return the number that the entry's picture draws of each row; dashes and repeated rows are left out."""
    rows: dict[tuple[str, float], PrintedRow] = {}
    for table in tables_of(entry):
        for row in table.rows:
            printed = row.values[table.columns.index(entry.column)]
            value = paper_and_studies.number_of(printed)
            if value is not None and not paper_and_studies.printed(printed).endswith("%"):
                is_ours = row.row.startswith("ExGRPO")
                key = (row.row, value)
                rows.setdefault(key, PrintedRow(row.group, row.row, value, paper_and_studies.printed(printed), is_ours))
    return list(rows.values())


def show(entry: Entry) -> None:
    """Show the printed numbers as a figure and as the paper's table, or that there are none."""
    if entry.drawing is Drawing.CASES:
        _cases(entry)
        return
    rows = rows_of(entry)
    if entry.drawing in {Drawing.METHOD, Drawing.BOUNDS, Drawing.RULES, Drawing.SETTINGS}:
        return
    if not rows:
        st.caption("The paper shows this without printing its numbers.")
        return
    if entry.drawing is not Drawing.BACKBONES:
        figures.show_card(
            "As the paper prints it", entry.column, bars(entry), f"printed-{entry.key}",
            f"Bars: {entry.column} of each row of {entry.label}",
        )  # fmt: skip
    with st.expander("The printed table", icon=":material/table:", key=f"printed-table-{entry.key}"):
        for table in tables_of(entry):
            data_table.show_numbers(study_results.printed_table(table), _WORDS, f"The paper's {entry.label}")


def bars(entry: Entry) -> go.Figure:
    """Return one bar a printed row, those of ExGRPO in the colour of replay, each with its number as printed."""
    colours, rows = theme.palette(), rows_of(entry)[::-1]
    figure = figures.new_figure(height=_PER_ROW * len(rows) + 64)
    names = [f"{row.group}: {row.name}" if _is_ambiguous(entry, row.name) else row.name for row in rows]
    figure.add_trace(
        go.Bar(
            orientation="h", y=names, x=[row.value for row in rows], text=[row.text for row in rows],
            textposition="outside", cliponaxis=False, name=entry.column,
            marker={"color": [colours.replay if row.is_ours else colours.muted for row in rows], "cornerradius": 3},
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(hovermode="closest", showlegend=False, bargap=0.3)
    figure.update_xaxes(
        title={"text": entry.column}, showgrid=True, range=[0, _MARGIN * max(row.value for row in rows)]
    )
    figure.update_yaxes(type="category")
    return figure


def _is_ambiguous(entry: Entry, name: str) -> bool:
    return sum(row.name == name for row in rows_of(entry)) > 1


def _cases(entry: Entry) -> None:
    """Show the entropies of the printed cases, which the paper gives with each response."""
    claims = [claim for claim in paper_and_studies.load_study(entry.study).claims if claim.row.startswith("Case")]
    lines = [f"- {claim.row}: {paper_and_studies.printed(claim.value)} nats per token" for claim in claims]
    st.markdown("\n".join(lines))
