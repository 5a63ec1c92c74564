"""What the paper prints: the index of its figures and tables, each entry's numbers as bars, and its table."""

from collections import Counter
from collections.abc import Iterator

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address, theme
from exgrpo.app.components.paper.entries import ENTRIES, PARTS, Entry
from exgrpo.app.components.widgets import data_table, figures
from exgrpo.jobs.actions.studies.comparison import WORDS, printed_table
from exgrpo.jobs.actions.studies.definition import PaperTable, load_study
from exgrpo.jobs.actions.studies.numbers import NumberRow, number_rows

_PER_ROW = 26
_MARGIN = 1.15


def tables_of(entry: Entry) -> Iterator[PaperTable]:
    """Yield the printed tables of an entry, as far as studies hold their rows."""
    for name in (entry.study, *entry.others):
        if entry.table:
            yield from (table for table in load_study(name).tables if table.name == entry.table)


def rows_of(entry: Entry) -> list[NumberRow]:
    """Return the number that the entry's picture draws of each row; dashes and repeated rows are left out."""
    rows: dict[tuple[str, float], NumberRow] = {}
    for study in (entry.study, *entry.others) if entry.table else ():
        for row in number_rows(load_study(study)):
            is_drawn = (row.table, row.column) == (entry.table, entry.column) and not row.printed.endswith("%")
            if is_drawn and row.value is not None:
                rows.setdefault((row.row, row.value), row)
    return list(rows.values())


def show(entry: Entry) -> None:
    """Show the printed numbers as a figure and as the paper's table, or that there are none."""
    if entry.drawing == "cases":
        _cases(entry)
        return
    rows = rows_of(entry)
    if entry.drawing in {"method", "bounds", "rules", "settings"}:
        return
    if not rows:
        st.caption("The paper shows this without printing its numbers.")
        return
    if entry.drawing != "backbones":
        figures.show_card(
            "As the paper prints it", entry.column, bars(entry), f"printed-{entry.key}",
            f"Bars: {entry.column} of each row of {entry.label}",
        )  # fmt: skip
    with st.expander("The printed table", icon=":material/table:", key=f"printed-table-{entry.key}"):
        for table in tables_of(entry):
            data_table.show_numbers(pd.DataFrame(printed_table(table)), WORDS, f"The paper's {entry.label}")


def bars(entry: Entry) -> go.Figure:
    """Return one bar a printed row, those of ExGRPO in the colour of replay, each with its number as printed."""
    colours, rows = theme.palette(), rows_of(entry)[::-1]
    figure = figures.new_figure(
        _PER_ROW * len(rows) + 64, entry.column, y={"type": "category"}, hovermode="closest", showlegend=False,
        x={"showgrid": True, "range": [0, _MARGIN * max(row.value or 0.0 for row in rows)]}, bargap=0.3,
    )  # fmt: skip
    alike = Counter(row.row for row in rows)
    names = [f"{row.group}: {row.row}" if alike[row.row] > 1 else row.row for row in rows]
    of_rows = [colours.replay if row.row.startswith("ExGRPO") else colours.muted for row in rows]
    figure.add_trace(
        go.Bar(
            orientation="h", y=names, x=[row.value for row in rows], text=[row.printed for row in rows],
            textposition="outside", cliponaxis=False, name=entry.column,
            marker={"color": of_rows, "cornerradius": 3},
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    return figure


def _cases(entry: Entry) -> None:
    cases = [row for row in number_rows(load_study(entry.study)) if row.row.startswith("Case")]
    lines = [f"- {row.row}: {row.printed} nats per token" for row in cases]
    st.markdown("\n".join(lines))


ADDRESS = "figure"


def show_index() -> None:
    """Show all cards, those of the appendix under a heading of their own."""
    for part in PARTS:
        st.subheader(part, anchor=False)
        with st.container(key=f"tiles-{figures.file_name(part)}"):
            for entry in ENTRIES:
                if entry.part == part:
                    _card(entry)


def _card(entry: Entry) -> None:
    with st.container(border=True, gap="xsmall", key=f"entry-{entry.key}", height="stretch"):
        st.button(
            f"**{entry.label}** {entry.title}", key=f"paper-open-{entry.key}", type="tertiary", on_click=address.put,
            args=({ADDRESS: entry.key},),
        )  # fmt: skip
        st.caption(entry.finding)
