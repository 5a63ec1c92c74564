"""What the paper prints of an entry: its picture as bars, and its table."""

import plotly.graph_objects as go
import streamlit as st

from app import paper_and_studies, theme
from app.components.benchmarks import printed_numbers
from app.components.paper.entries import Drawing, Entry
from app.components.paper.printed_rows import rows_of, tables_of
from app.components.studies import study_results
from app.components.widgets import figures

_PER_ROW = 26
_WORDS = ("Group", "Row", "Cells here")
_MARGIN = 1.15


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
            printed_numbers.show(study_results.printed_table(table), _WORDS, f"The paper's {entry.label}")


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
