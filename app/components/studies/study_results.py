"""What the paper prints about a study, the results of finished runs next to it, and its report as a file."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import data_table, figures, notice
from exgrpo.jobs.actions.studies.comparison import (
    WORDS,
    Table,
    compare,
    comparison_table,
    coverage,
    differences_sentence,
    figures_table,
    gains_table,
    is_by_column,
    printed_table,
    reading,
    texts_table,
)
from exgrpo.jobs.actions.studies.definition import RunKey, Study
from exgrpo.jobs.actions.studies.numbers import disagreements
from exgrpo.jobs.actions.studies.study_report import BARS, draw_cells, render_report
from exgrpo.jobs.actions.studies.study_results import StudyResults

_PER_CELL = 34


def show(results: StudyResults) -> None:
    """Show measured figures next to the paper's, what the intervals mean, and every figure of every cell."""
    rows, by_column = compare(results), is_by_column(results.study)
    if not any(result.seeds for result in results.cells):
        notice.show_empty("science", "No run has finished yet", "Results appear here after the first finished run.")
        return
    if rows:
        table = comparison_table(rows, by_column=by_column)
        name = f"{results.study.name}-next-to-the-paper"
        _draw(table, "The paper's numbers next to yours", "Next to the paper", name)
    sentences = [
        differences_sentence(results.study, results),
        "" if by_column else reading(results),
        "Your figures are means over seeds.",
        coverage(results),
    ]
    st.caption(" ".join(filter(None, sentences)))
    figure = chart(results)
    if figure is not None and results.main_figure is not None:
        dotted = "; dotted: the baseline's mean" if results.common_baseline else ""
        figures.show_card(
            results.main_figure, f"orange: each seed; blue: mean and {BARS}{dotted}", figure, "study-cells",
            "Means and intervals of each cell",
        )  # fmt: skip
    _draw(figures_table(results), "Every figure of every cell", "Your figures", f"{results.study.name}-own-figures")


def chart(results: StudyResults) -> go.Figure | None:
    """Return the main figure of each cell: seeds, mean and interval; None without any."""
    name = results.main_figure
    if name is None:
        return None
    colours = theme.palette()
    height = _PER_CELL * sum(name in result.figures for result in results.cells) + 70
    figure = figures.new_figure(height, name, x={"showgrid": True}, hovermode="closest", showlegend=False)
    draw_cells(figure, results, colours.fresh, colours.held_out, colours.muted)
    return figure


def report(results: StudyResults, wanted: Sequence[RunKey]) -> None:
    """Show the button that hands out the study's HTML page; it is written at the click."""
    done = {(result.cell.name, seed.seed) for result in results.cells for seed in result.seeds}
    states = dict(results.unfinished)
    unfinished = tuple((key, states.get(key, "missing")) for key in wanted if (key.cell, key.seed) not in done)
    whole = replace(results, unfinished=unfinished)
    st.download_button(
        "Report as HTML", lambda: render_report(whole, len(wanted)), icon=":material/download:",
        key="report",
        file_name=f"{results.study.name}-{results.scale}.html", mime="text/html", on_click="ignore",
        help="One HTML file with both sides, figures, configuration and what was not run; as `exgrpo study report`",
    )  # fmt: skip


def show_paper(study: Study) -> None:
    """Show the paper's tables as printed, numbers in the running text, and which of them disagree."""
    for table in study.tables:
        _draw(printed_table(table), "The paper's table", "The paper's table", f"{study.name}-printed")
    texts, gains = texts_table(study), gains_table(study)
    if texts:
        _draw(texts, "Numbers in the paper's text", "In the text", f"{study.name}-text")
    if gains:
        _draw(gains, "Gains in each setting, from the printed tables", "Gains by setting", f"{study.name}-gains")
    if not study.tables and not texts:
        st.markdown(":gray[The paper prints no numbers for this study.]")
    faults = disagreements(study)
    if faults:
        st.subheader("Printed numbers that do not agree with each other", anchor=False)
        # Readers of the page do not know the labels that the paper's source gives its tables.
        labels = {table.name for table in study.tables}
        places = [", ".join(part for part in fault.place if part and part not in labels) for fault in faults]
        st.text("\n".join(f"{place}: {fault.sentence}." for place, fault in zip(places, faults, strict=True)))


def _draw(table: Table, alt: str, title: str, name: str) -> None:
    data_table.show_numbers(pd.DataFrame(table), WORDS, alt, title, name)
