"""What the paper prints about a study, the results of finished runs next to it, and its report as a file."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import data_table, figures, notice
from db.statistics import MeanInterval
from jobs.actions.studies.comparison import (
    ComparedRow,
    compare,
    coverage,
    differences_sentence,
    interval_text,
    is_by_column,
    reading,
)
from jobs.actions.studies.definition import PaperTable, Study
from jobs.actions.studies.matrix import RunKey
from jobs.actions.studies.numbers import disagreements, number_rows, printed, setting_gains
from jobs.actions.studies.study_report import BARS, interval_bars, render_report
from jobs.actions.studies.study_results import CellResult, StudyResults

_PER_CELL = 34
_WORDS = ("Paper's row", "Cell", "Column", "Figure")


def show(results: StudyResults) -> None:
    """Show measured figures next to the paper's, what the intervals mean, and every figure of every cell."""
    rows, by_column = compare(results), is_by_column(results.study)
    if not any(result.seeds for result in results.cells):
        notice.show_empty("science", "No run has finished yet", "Results appear here after the first finished run.")
        return
    if rows:
        frame = beside_table(rows, by_column=by_column)
        data_table.show_numbers(
            frame, _WORDS, "The paper's numbers next to yours", "Next to the paper",
            f"{results.study.name}-next-to-the-paper",
        )  # fmt: skip
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
    frame = figures_table(results)
    data_table.show_numbers(
        frame, _WORDS, "Every figure of every cell", "Your figures", f"{results.study.name}-own-figures"
    )


def beside_table(rows: Sequence[ComparedRow], *, by_column: bool) -> pd.DataFrame:
    """Return one row for each printed number with the cell that reproduces it."""
    frame: dict[str, Sequence[object]] = {
        "Paper's row": [row.full_row if by_column else row.row for row in rows],
        "Cell": [row.cell for row in rows],
    }
    if by_column:
        frame["Column"] = [row.column for row in rows]
        frame["Paper"] = [row.printed for row in rows]
        frame["Yours"] = [_text(row.own) for row in rows]
    else:
        gains = [None if row.printed_gain is None else f"{row.printed_gain:+z.1f}" for row in rows]
        frame[f"Paper, {rows[0].column}"] = [row.printed for row in rows]
        frame["Paper, difference"] = gains
        frame["Yours"] = [_text(row.own) for row in rows]
        frame["Yours, difference"] = [_text(row.difference, is_difference=True) for row in rows]
        frame["Lowest seed"] = [None if row.own is None else f"{min(row.own.values):.1f}" for row in rows]
    frame["Seeds"] = [row.num_seeds for row in rows]
    return _without_empty_differences(pd.DataFrame(frame))


def figures_table(results: StudyResults) -> pd.DataFrame:
    """Return one row per figure and one column per cell, each as mean and half interval."""
    done = [result for result in results.cells if result.seeds]
    names = list(dict.fromkeys(name for result in done for name in result.figures))
    columns = {result.cell.name: [_text(result.figures.get(name)) for name in names] for result in done}
    return pd.DataFrame({"Figure": names, **columns}) if len(names) > len(done) else _by_cell(results, names)


def chart(results: StudyResults) -> go.Figure | None:
    """Return the main figure of each cell: seeds, mean and interval; None without any."""
    name = results.main_figure
    if name is None:
        return None
    rows = [result for result in results.cells if name in result.figures]
    colours, drawn = theme.palette(), rows[::-1]
    figure = figures.new_figure(height=_PER_CELL * len(rows) + 70)
    baseline = results.common_baseline
    if baseline is not None:
        figure.add_vline(x=baseline.figures[name].mean, line={"color": colours.muted, "width": 1, "dash": "dot"})
    figure.add_trace(_means(drawn, name, colours.fresh))
    seeds = [(value, row.cell.name) for row in drawn for value in row.figures[name].values]
    figure.add_trace(
        go.Scatter(
            x=[value for value, _ in seeds], y=[cell for _, cell in seeds], mode="markers", name="seed",
            marker={"color": colours.held_out, "size": 9, "symbol": "line-ns-open", "line": {"width": 1.5}},
            hovertemplate="%{y}: %{x:.1f}<extra>seed</extra>",
        )
    )  # fmt: skip
    figure.update_layout(hovermode="closest", showlegend=False)
    figure.update_xaxes(title={"text": name}, showgrid=True)
    figure.update_yaxes(type="category")
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


def _text(interval: MeanInterval | None, *, is_difference: bool = False) -> str | None:
    return None if interval is None else interval_text(interval, is_difference)


def _by_cell(results: StudyResults, names: Sequence[str]) -> pd.DataFrame:
    rows = []
    for result in results.cells:
        if result.seeds:
            values = {name: _text(result.figures.get(name)) for name in names}
            difference = _text(results.difference(result), is_difference=True)
            rows.append({"Cell": result.cell.name, **values, "Difference": difference, "Seeds": len(result.seeds)})
    return _without_empty_differences(pd.DataFrame(rows))


def _without_empty_differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without differences where no cell has one, as in a study without a baseline."""
    names = {"Paper, difference", "Yours, difference", "Difference"}
    return frame.drop(columns=[name for name in frame if name in names and frame[name].isna().all()])


def _means(rows: Sequence[CellResult], name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[row.figures[name].mean for row in rows], y=[row.cell.name for row in rows], mode="markers", name="mean",
        marker={"color": colour, "size": 9, "symbol": "diamond"},
        error_x=interval_bars(rows, name) | {"color": colour},
        hovertemplate="%{y}: %{x:.1f}<extra>mean</extra>",
    )  # fmt: skip


_TEXT = "text"
_PAPER_WORDS = ("Group", "Row", "Cells here", "What", "Column", "Setting")


def show_paper(study: Study) -> None:
    """Show the paper's tables as printed, numbers in the running text, and which of them disagree."""
    for table in study.tables:
        data_table.show_numbers(
            printed_table(table), _PAPER_WORDS, "The paper's table", "The paper's table", f"{study.name}-printed"
        )
    texts = [row for row in number_rows(study) if row.table == _TEXT]
    if texts:
        frame = pd.DataFrame(
            {"What": [row.row for row in texts], "Column": [row.column for row in texts],
             "Number": [row.printed for row in texts]}
        )  # fmt: skip
        data_table.show_numbers(frame, _PAPER_WORDS, "Numbers in the paper's text", "In the text", f"{study.name}-text")
    if study.gains:
        frame = gains_table(study)
        data_table.show_numbers(
            frame, _PAPER_WORDS, "Gains in each setting, from the printed tables", "Gains by setting",
            f"{study.name}-gains",
        )  # fmt: skip
    if not study.tables and not texts:
        st.markdown(":gray[The paper prints no numbers for this study.]")
    faults = disagreements(study)
    if faults:
        st.subheader("Printed numbers that do not agree with each other", anchor=False)
        st.text("\n".join(f"{_without_label(study, fault.location)}: {fault.sentence}." for fault in faults))


def printed_table(table: PaperTable) -> pd.DataFrame:
    """Return a table of the paper, each cell as printed."""
    frame = pd.DataFrame([[printed(value) for value in row.values] for row in table.rows], columns=list(table.columns))
    frame.insert(0, "Cells here", [", ".join(row.cells) or "none" for row in table.rows])
    frame.insert(0, "Row", [row.row for row in table.rows])
    if any(row.group for row in table.rows):
        frame.insert(0, "Group", [row.group for row in table.rows])
    return frame


def gains_table(study: Study) -> pd.DataFrame:
    """Return what the method gains in each setting by the printed tables, and the mean over settings."""
    gains, columns = setting_gains(study), list(study.gain_columns)
    rows = [{"Setting": gain.setting} | {name: f"{gain.gains[name]:+z.1f}" for name in columns} for gain in gains]
    means = {name: f"{fmean(gain.gains[name] for gain in gains):+z.2f}" for name in columns}
    return pd.DataFrame([*rows, {"Setting": "Mean", **means}])


def _without_label(study: Study, location: str) -> str:
    """Return where a number is printed without the label that the paper's source gives its table."""
    for table in study.tables:
        location = location.removeprefix(f"{table.name}, ")
    return location
