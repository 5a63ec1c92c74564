"""What the paper prints about a study: tables, numbers in the text, and where they disagree."""

from statistics import fmean

import pandas as pd
import streamlit as st

from app import paper_and_studies
from app.components.benchmarks import printed_numbers
from app.components.widgets import exports
from app.paper_and_studies import PaperTable, Study

_TEXT = "text"
_WORDS = ("Group", "Row", "Cells here", "What", "Column", "Setting")


def show(study: Study) -> None:
    """Show the paper's tables as printed, numbers in the running text, and which of them disagree."""
    for table in study.tables:
        frame = printed_table(table)
        exports.show_heading("The paper's table", frame, f"{study.name}-printed")
        printed_numbers.show(frame, _WORDS, "The paper's table")
    texts = [row for row in paper_and_studies.number_rows(study) if row.table == _TEXT]
    if texts:
        frame = pd.DataFrame(
            {"What": [row.row for row in texts], "Column": [row.column for row in texts],
             "Number": [row.printed for row in texts]}
        )  # fmt: skip
        exports.show_heading("In the text", frame, f"{study.name}-text")
        printed_numbers.show(frame, _WORDS, "Numbers in the paper's text")
    if study.gains:
        frame = gains_table(study)
        exports.show_heading("Gains by setting", frame, f"{study.name}-gains")
        printed_numbers.show(frame, _WORDS, "Gains in each setting, from the printed tables")
    if not study.tables and not texts:
        st.markdown(":gray[The paper prints no numbers for this study.]")
    faults = paper_and_studies.disagreements(study)
    if faults:
        st.subheader("Printed numbers that do not agree with each other", anchor=False)
        st.text("\n".join(f"{_without_label(study, fault.location)}: {fault.sentence}." for fault in faults))


def printed_table(table: PaperTable) -> pd.DataFrame:
    """Return a table of the paper, each cell as printed."""
    frame = pd.DataFrame(
        [[paper_and_studies.printed(value) for value in row.values] for row in table.rows], columns=list(table.columns)
    )
    frame.insert(0, "Cells here", [", ".join(row.cells) or "none" for row in table.rows])
    frame.insert(0, "Row", [row.row for row in table.rows])
    if any(row.group for row in table.rows):
        frame.insert(0, "Group", [row.group for row in table.rows])
    return frame


def gains_table(study: Study) -> pd.DataFrame:
    """Return what the method gains in each setting by the printed tables, and the mean over settings."""
    gains, columns = paper_and_studies.setting_gains(study), list(study.gain_columns)
    rows = [{"Setting": gain.setting} | {name: f"{gain.gains[name]:+.1f}" for name in columns} for gain in gains]
    means = {name: f"{fmean(gain.gains[name] for gain in gains):+.2f}" for name in columns}
    return pd.DataFrame([*rows, {"Setting": "Mean", **means}])


def _without_label(study: Study, location: str) -> str:
    """Return where a number is printed without the label that the paper's source gives its table."""
    for table in study.tables:
        location = location.removeprefix(f"{table.name}, ")
    return location
